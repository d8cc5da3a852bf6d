/* A decoder layer before and after its attention, for a few rows of a float32 stream:

       before   v = QKV norm(stream),  qk = rotate(v's queries and keys)
       after    stream += O attended,  stream += Down swiglu(GateUp norm(stream))

   The same functions as one by one, and the same roundings between them, without the calls. A matrix
   is multiplied by the function it brings along: matrices of a layer may have different widths. */

#include "native.h"

#include "gate/swiglu.c"
#include "norm/rms_norm.c"
#include "residual/add.c"
#include "rope/rotation.c"

/* `fused.c`'s product of a weight that lies in panels. */
typedef void Product(const Number *x, const uint32_t *words, const Number *scale, const Number *zero,
                     const Number *bias, Number *y, float *scratch, long rows, long outputs,
                     long inputs, long groups, int threads);

typedef struct {
    Product *product;
    const uint32_t *words;
    const Number *scale, *zero, *bias;
    long outputs, inputs, groups;
} Matrix;

INLINE void multiply(const Matrix *w, const Number *x, Number *y, float *scratch, long rows,
                     int threads) {
    w->product(x, w->words, w->scale, w->zero, w->bias, y, scratch, rows, w->outputs, w->inputs,
               w->groups, threads);
}

typedef struct {
    const float *gain;
    float floor;
    const Matrix qkv;
    long turned, width; /* heads of queries and keys; numbers of a head */
    long scratch;       /* floats that a product of one row needs */
} Before;

/* stream [T, H] -> vectors [T, heads + 2 kv, D] and rotated [T, heads + kv, D]. `workspace` holds T
   times the scratch and H numbers. */
void before_attention(const Before *b, const float *stream, const float *cosine,
                      const float *signed_sine, Number *vectors, Number *rotated, float *workspace,
                      long rows, int threads) {
    Number *normed = (Number *)(workspace + rows * b->scratch);
    rms_norm(stream, b->gain, b->floor, normed, rows, b->qkv.inputs);
    multiply(&b->qkv, normed, vectors, workspace, rows, threads);
    rotate(vectors, cosine, signed_sine, rotated, rows, b->turned, b->width, b->qkv.outputs);
}

typedef struct {
    const float *gain;
    float floor;
    const Matrix o, gate_up, down;
    long scratch; /* floats that any product of one row needs */
} After;

/* attended [T, Q]; stream [T, H] in place. `workspace` holds T times the scratch and H + 3 F
   numbers. */
void after_attention(const After *a, const Number *attended, float *stream, float *workspace,
                     long rows, int threads) {
    const long hidden = a->o.outputs, inner = a->down.inputs;
    Number *given = (Number *)(workspace + rows * a->scratch);
    Number *gates = given + rows * hidden, *product = gates + 2 * rows * inner;
    multiply(&a->o, attended, given, workspace, rows, threads);
    add(stream, given, rows * hidden);
    rms_norm(stream, a->gain, a->floor, given, rows, hidden);
    multiply(&a->gate_up, given, gates, workspace, rows, threads);
    swiglu(gates, product, rows, inner);
    multiply(&a->down, product, given, workspace, rows, threads);
    add(stream, given, rows * hidden);
}
