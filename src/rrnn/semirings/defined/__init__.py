"""The semirings that come with the library, one file each; `rrnn.semirings.registry` finds them."""
