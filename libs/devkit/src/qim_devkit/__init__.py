"""qim on one machine, for developers: nothing in here runs in production.

* :mod:`qim_devkit.pki`: the local certificate authorities,
* :mod:`qim_devkit.valkey`: the embedded Valkey,
* :mod:`qim_devkit.suite`: Valkeys and services as processes, for `make up`, the demo, the benchmark and e2e tests,
* :mod:`qim_devkit.protos`: the generator of `protos/gen`.
"""
