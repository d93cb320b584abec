"""Programs for the kernel that end by themselves; `code` is how."""

HELLO = 'print("first line")\nprint("second line")\nraise SystemExit({code})\n'
MEGABYTE = """
import sys
for number in range(16384):
    sys.stdout.write(f"{number:062d}\\n")
sys.stdout.write("the last line\\n")
"""
