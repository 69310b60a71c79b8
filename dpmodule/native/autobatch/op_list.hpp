// What nodes of the engine do: OPERATION(enumerator, name in Python). Whoever includes this file defines the macro.

OPERATION(Input, "input")    // numbers given by the user
OPERATION(Param, "param")    // a whole parameter
OPERATION(Lookup, "lookup")  // a row of a table; aux = the row
OPERATION(View, "view")      // consecutive numbers of the argument; aux = where they begin
OPERATION(Affine, "affine")  // b + W1 x1 + W2 x2 ...; the parameters are part of the signature
OPERATION(Unary, "unary")
OPERATION(Binary, "binary")
OPERATION(
    Concat,
    "concat")  // vectors one after the other; kind < 0: into a minibatch, with -2 rows of a table, with -3 elements of one, with -4 one vector again and again
OPERATION(Sum, "sum")    // of any number of arguments of one shape
OPERATION(Lstm, "lstm")  // x, h, c -> (h, c) in one row of twice the width
OPERATION(
    PickNegLogSoftmax,
    "loss")  // aux = the label; of minibatches, where their labels lie in Graph::args; kind = 1: given as a list, 2: one for each row
OPERATION(Softmax, "softmax")
OPERATION(LogSoftmax, "log_softmax")
OPERATION(SumElems, "sum_elems")
OPERATION(Dot, "dot")
OPERATION(SquaredNorm, "squared_norm")
OPERATION(Call, "call")                       // anything else: one call into Python for a whole batch
OPERATION(UnaryEach, "unary_each")            // a Unary whose number differs from node to node; aux = its bits
OPERATION(Multiply, "multiply")               // of any two matrices; a vector is a column
OPERATION(AddColumn, "colwise_add")           // a vector to every column of a matrix
OPERATION(ConcatColumns, "concatenate_cols")  // matrices side by side; kind = along which dimension
OPERATION(
    Columns,
    "columns")  // some numbers of every row; kind = how many rows, negative where one place is picked; aux = the first number
OPERATION(Arrange, "arrangement")      // the argument's numbers in another order; kind = which Arrangement
OPERATION(Hinge, "hinge")              // aux and kind as PickNegLogSoftmax has them, attr = the margin
OPERATION(Drawn, "drawn")              // kind = which Draw; its numbers are drawn once for a whole batch
OPERATION(Reduce, "reduction")         // kind = which Reduction, attr = what means are divided by
OPERATION(Convolve, "conv2d")          // an image, filters, perhaps biases; kind = which Convolution
OPERATION(Pool, "maxpooling2d")        // the greatest numbers of windows of an image
OPERATION(Broadcast, "broadcast")      // kind = which Binary, of operands of different shapes
OPERATION(Select, "select")            // some rows and columns
OPERATION(PickEach, "pick_batch")      // one place of each element of a minibatch; aux as that of losses
OPERATION(Greatest, "kmax_pooling")    // kind = how many of the numbers along a dimension, in their order
OPERATION(Sums, "cumsum")              // of the numbers along a dimension up to each of them
OPERATION(Sparsemax, "sparsemax")      // kind = how many numbers share it
OPERATION(Compound, "recurrent_step")  // kind = which of Signatures::compounds; two results are stored as those of Lstm
OPERATION(Constrained, "constrained_softmax")  // a softmax below bounds; kind = how many numbers share it
OPERATION(Argmax, "argmax")                    // ones where numbers along the first dimension are greatest
OPERATION(Inverse, "inverse")                  // of square matrices

#undef OPERATION
