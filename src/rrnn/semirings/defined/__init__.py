"""The built-in semirings, one file each; `rrnn.semirings.registry` finds them."""
