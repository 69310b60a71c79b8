"""Sparse and ragged values, operator rules for them, and operators on storage types.

The rules are imported when the first sparse value is used, see `dispatch`.
"""

from .dispatch import SparseCall as SparseCall
from .dispatch import SparseRule as SparseRule
from .dispatch import add_ragged_rule as add_ragged_rule
from .dispatch import add_rule as add_rule
from .dispatch import attach_gradient as attach_gradient
from .dispatch import densify as densify
from .dispatch import fit_gradient as fit_gradient
from .dispatch import has_dense_rule as has_dense_rule
from .dispatch import log_fallback as log_fallback
from .dispatch import rule_of as rule_of
from .dispatch import stored_as as stored_as
from .gradients import as_rows as as_rows
from .gradients import row_gradient as row_gradient
from .gradients import stored_rows as stored_rows
from .gradients import sum_rows_by_index as sum_rows_by_index
from .storage import Csr as Csr
from .storage import Ragged as Ragged
from .storage import RowSparse as RowSparse
from .storage import Sparse as Sparse
from .storage import add_rows as add_rows
from .storage import all_rows as all_rows
from .storage import anchor_for as anchor_for
from .storage import leaf_of as leaf_of
from .storage import ragged_rows as ragged_rows
