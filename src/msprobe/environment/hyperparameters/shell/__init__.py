"""Launch scripts read as text: ``words`` and ``commands`` find the commands, ``expansion`` and ``arithmetic`` what
words stand for, ``conditions`` which branch is meant, ``script`` follows it all. Nothing is executed.
"""
