"""The code that child processes run.

assign   computes a target assignment
resolve  resolves a group's regular expressions
"""
