"""Sparse values: what operators do with them, and the operators that are about storage.

The rules of operators are imported when the first sparse value comes, see `rule`.
"""

from .call import SparseCall as SparseCall
from .call import densify as densify
from .call import fitting as fitting
from .call import stored_as as stored_as
from .call import with_history as with_history
from .ragged import Ragged as Ragged
from .ragged import ragged_rows as ragged_rows
from .records import Csr as Csr
from .records import Rows as Rows
from .records import Sparse as Sparse
from .records import anchor_for as anchor_for
from .records import as_rows as as_rows
from .records import leaf_of as leaf_of
from .records import nothing_in as nothing_in
from .records import row_gradient as row_gradient
from .records import row_range as row_range
from .records import stored_rows as stored_rows
from .rule import SparseRule as SparseRule
from .rule import add_ragged_rule as add_ragged_rule
from .rule import add_rule as add_rule
from .rule import counts_alone as counts_alone
from .rule import note_fallback as note_fallback
from .rule import rule_of as rule_of
