/* stream += rows, for `count` float32 of a stream and as many numbers. */

#include "native.h"

void add(float *stream, const Number *rows, long count) {
    const long whole = count / LANES * LANES;
    for (long i = 0; i < whole; i += LANES)
        store_floats(stream + i, load_floats(stream + i) + load_numbers(rows + i));
    for (long i = whole; i < count; i++) stream[i] += widen(rows[i]);
}
