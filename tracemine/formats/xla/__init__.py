"""Profiles of JAX and other users of XLA: `HOST.xplane.pb`, and `HOST.trace.json.gz` where that is alone."""
