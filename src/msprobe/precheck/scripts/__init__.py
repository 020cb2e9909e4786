"""Scripts that reproduce one call: written from a dump, they need their framework alone."""
