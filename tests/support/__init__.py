"""What tests share: dumps that are made, programs that are run, tables whose rows are gone through."""
