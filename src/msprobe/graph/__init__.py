"""The hierarchy of what ran: one dump as a tree, two trees side by side, and the files that viewers open."""
