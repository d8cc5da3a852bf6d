/* A dense weight as it lies, row after row, by a few rows:

       y[t, n] = sum_k x[t, k] w[n, k] + b[n],   w [N, K]

   A register takes neighbours of one output and meets those of up to four rows. Numbers in 16 bits
   are widened as they come, those of a row once. Of bfloat16 a word's upper half is the odd number
   as it stands, and the lower half shifted up the even one: two instructions for two registers, once
   the rows lie as evens and odds too. Sums are as many as registers hold, since an addition takes
   four cycles and others must begin meanwhile.

   The arguments are those of fused.c's product, so that others in C call either: scales, zeros and
   groups are none here. */

#include "native.h"

#define PAIR (2 * LANES)
#define GROUP 8
#define TOGETHER 4
#define AHEAD 1024

/* PAIR numbers in an order that products share. */
INLINE void widen_pair(const Number *from, Floats *first, Floats *second) {
#ifdef BFLOAT16
    Words held;
    memcpy(&held, from, sizeof held);
    *first = (Floats)(held << 16);
    *second = (Floats)(held & 0xffff0000u);
#else
    *first = load_numbers(from);
    *second = load_numbers(from + LANES);
#endif
}

typedef struct {
    const Number *weight; /* [N, K] */
    const Number *bias;   /* [N], or null */
    long outputs, inputs;
} Weight;

/* `tile` outputs of some rows, as many sums as rows times outputs, of which n..end are stored. No
   tile is cut: a loop of one sum may be compiled to other roundings, and a row's sums are to be the
   same in any company. Where outputs give out, the last tile lies over the one before. */
INLINE void multiply_tile(const Weight *w, int rows, int tile, const float *x, Number *y, long n,
                          long end) {
    const long at = least(n, w->outputs - tile);
    const Number *weight = w->weight + at * w->inputs;
    Floats s[TOGETHER * GROUP];
    for (int i = 0; i < rows * tile; i++) s[i] = (Floats){0};
    for (long k = 0; k < w->inputs; k += PAIR) {
        Floats first[GROUP], second[GROUP];
        for (int o = 0; o < tile; o++) {
            const Number *from = weight + o * w->inputs + k;
            __builtin_prefetch(from + AHEAD);
            widen_pair(from, first + o, second + o);
        }
        for (int t = 0; t < rows; t++) {
            const Floats one = load_floats(x + t * w->inputs + k);
            const Floats other = load_floats(x + t * w->inputs + k + LANES);
            for (int o = 0; o < tile; o++) s[t * tile + o] += first[o] * one;
            for (int o = 0; o < tile; o++) s[t * tile + o] += second[o] * other;
        }
    }
    for (int t = 0; t < rows; t++)
        for (int o = 0; o < tile; o++) {
            const float sum = sum_of(s[t * tile + o]);
            if (n <= at + o && at + o < end)
                y[t * w->outputs + at + o] = narrow(w->bias ? sum + widen(w->bias[at + o]) : sum);
        }
}

/* Outputs n..end of `rows` rows. */
INLINE void multiply_rows(const Weight *w, int rows, int tile, const float *x, Number *y, long n,
                          long end) {
    if (w->outputs < tile)
        for (; n < end; n++) multiply_tile(w, rows, 1, x, y, n, end);
    for (; n < end; n += tile) multiply_tile(w, rows, tile, x, y, n, end);
}

/* x [T, K] -> y [T, N], K in whole pairs. `scratch` holds T K floats. A thread takes neighbouring
   outputs; a group of them stays in the first-level cache while all rows pass. */
void row_major_product(const Number *x, const uint32_t *weight, const Number *scale,
                       const Number *zero, const Number *bias, Number *y, float *scratch, long rows,
                       long outputs, long inputs, long groups, int threads) {
    const Weight w = {(const Number *)weight, bias, outputs, inputs};
    (void)scale, (void)zero, (void)groups;
    for (long i = 0; i < rows * inputs; i += PAIR) {
        Floats first, second;
        widen_pair(x + i, &first, &second);
        store_floats(scratch + i, first);
        store_floats(scratch + i + LANES, second);
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int part = 0; part < threads; part++) {
        const long last = outputs * (part + 1) / threads;
        for (long n = outputs * part / threads; n < last; n += GROUP) {
            const long end = least(n + GROUP, last);
            for (long t = 0; t < rows;) {
                const float *wide = scratch + t * inputs;
                Number *to = y + t * outputs;
                if (t + 4 <= rows)
                    multiply_rows(&w, 4, 2, wide, to, n, end), t += 4;
                else if (t + 2 <= rows)
                    multiply_rows(&w, 2, 4, wide, to, n, end), t += 2;
                else
                    multiply_rows(&w, 1, 4, wide, to, n, end), t += 1;
            }
        }
    }
}
