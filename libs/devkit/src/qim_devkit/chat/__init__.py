"""`qim chat`: a small terminal chat through the development gateway.

`model` holds what a chat knows and how answers and events change it, `lines` what the open conversation shows (both are
pure); `feed` talks to the services, `controller` stands between the two, `app` and `widgets` draw with textual.
"""
