"""What a comparison of two packs of the configuration check leaves: a folder with a workbook and a page, and lines."""
