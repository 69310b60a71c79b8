// Operations of nodes: OPERATION(enumerator, name in Python). The including file defines the macro.

OPERATION(Input, "input")    // numbers given by the user
OPERATION(Param, "param")    // a whole parameter
OPERATION(Lookup, "lookup")  // a row of a table; aux = the row
OPERATION(View, "view")      // consecutive numbers of the argument; aux = the first one
OPERATION(Affine, "affine")  // b + W1 x1 + W2 x2 ...; the parameters are part of the signature
OPERATION(Unary, "unary")
OPERATION(Binary, "binary")
OPERATION(
    Concat,
    "concat")  // concatenation; kind < 0: into a minibatch, -2 of table rows, -3 its elements, -4 a repeated vector
OPERATION(Sum, "sum")    // of any number of arguments of one shape
OPERATION(Lstm, "lstm")  // x, h, c -> (h, c) in one row of twice the width
OPERATION(
    PickNegLogSoftmax,
    "loss")  // aux = the label, or the position of labels in Graph::args; kind = 1: given as a list, 2: one per row
OPERATION(Softmax, "softmax")
OPERATION(LogSoftmax, "log_softmax")
OPERATION(SumElems, "sum_elems")
OPERATION(Dot, "dot")
OPERATION(SquaredNorm, "squared_norm")
OPERATION(Call, "call")                       // any other operation: one call into Python per batch
OPERATION(UnaryEach, "unary_each")            // a Unary with a number per node; aux = its bits
OPERATION(Multiply, "multiply")               // of two matrices; a vector is a column
OPERATION(AddColumn, "colwise_add")           // a vector to every column of a matrix
OPERATION(ConcatColumns, "concatenate_cols")  // matrices concatenated by columns; kind = dimension
OPERATION(
    Columns,
    "columns")  // some numbers of every row; kind = number of rows, negative for a single index; aux = the first number
OPERATION(Arrange, "arrangement")              // reordered elements; kind = the Arrangement
OPERATION(Hinge, "hinge")                      // aux and kind as for PickNegLogSoftmax, attr = the margin
OPERATION(Drawn, "drawn")                      // kind = the Draw; random numbers are drawn once per batch
OPERATION(Reduce, "reduction")                 // kind = the Reduction, attr = divisor of means
OPERATION(Convolve, "conv2d")                  // an image, filters, optional biases; kind = the Convolution
OPERATION(Pool, "maxpooling2d")                // maxima of windows of an image
OPERATION(Broadcast, "broadcast")              // kind = the Binary, with operands of different shapes
OPERATION(Select, "select")                    // some rows and columns
OPERATION(PickEach, "pick_batch")              // one index per element of a minibatch; aux as for losses
OPERATION(Greatest, "kmax_pooling")            // kind = number of greatest elements along a dimension, in their order
OPERATION(Sums, "cumsum")                      // cumulative sums along a dimension
OPERATION(Sparsemax, "sparsemax")              // kind = number of elements
OPERATION(Compound, "recurrent_step")          // kind = number in Signatures::compounds; results stored as for Lstm
OPERATION(Constrained, "constrained_softmax")  // a bounded softmax; kind = number of elements
OPERATION(Argmax, "argmax")                    // one-hot maxima along the first dimension
OPERATION(Inverse, "inverse")                  // of square matrices

#undef OPERATION
