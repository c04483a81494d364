"""Kubernetes manifests: rendered, read as a kubelet would, and checked against the code (docs/operations.md)."""
