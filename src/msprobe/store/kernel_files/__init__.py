"""Files that devices dump of their kernels, without the vendor's tools: the wire format, the ACL dump, its types."""
