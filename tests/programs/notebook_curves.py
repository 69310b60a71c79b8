"""Train in a cell of a notebook with a curve that is drawn while it runs; print what is displayed."""

import matplotlib
from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.interactiveshell import InteractiveShell
from matplotlib_inline.backend_inline import configure_inline_support

CELL = """
import dpmodule as mx
from helpers.small_fits import trained
_, history = trained(num_epoch=3, callbacks=mx.callback.LiveCurve())
history.plot("train-accuracy")
"""
BACKEND = "module://matplotlib_inline.backend_inline"
shell = InteractiveShell.instance()
shell.display_pub = CapturingDisplayPublisher()
matplotlib.use(BACKEND)
matplotlib.interactive(True)
configure_inline_support(shell, BACKEND)
shell.run_cell(CELL).raise_error()
for each in shell.display_pub.outputs:
    print(sorted(each["data"]), each.get("update"), each.get("transient"))
