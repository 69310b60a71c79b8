"""Sparse values: what operators do with them, and the operators that are about storage.

The rules of operators are imported when the first sparse value comes, see `rule`.
"""

from .gradients import as_rows as as_rows
from .gradients import row_gradient as row_gradient
from .gradients import stored_rows as stored_rows
from .records import Csr as Csr
from .records import Ragged as Ragged
from .records import Rows as Rows
from .records import Sparse as Sparse
from .records import anchor_for as anchor_for
from .records import leaf_of as leaf_of
from .records import ragged_rows as ragged_rows
from .records import rows_added as rows_added
from .rule import SparseCall as SparseCall
from .rule import SparseRule as SparseRule
from .rule import add_ragged_rule as add_ragged_rule
from .rule import add_rule as add_rule
from .rule import counts_alone as counts_alone
from .rule import densify as densify
from .rule import fitting as fitting
from .rule import note_fallback as note_fallback
from .rule import rule_of as rule_of
from .rule import stored_as as stored_as
from .rule import with_history as with_history
