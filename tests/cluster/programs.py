"""Programs for the kernel that end by themselves; `code` is how."""

HELLO = 'print("first line")\nprint("second line")\nraise SystemExit({code})\n'
# By the kind of cluster: what is in a real runtime's pipe at the exit may be lost there, in the log
# too, and a long output may leave much in it.
LINGERS = {"local": "", "real": "import sys, time\nsys.stdout.flush()\ntime.sleep(1)\n"}
MEGABYTE = """
import sys
for number in range(16384):
    sys.stdout.write(f"{number:062d}\\n")
sys.stdout.write("the last line\\n")
"""
