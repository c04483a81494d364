"""The redis backend: one Redis or Valkey instance, or several, with `appendfsync always`, is the authority."""
