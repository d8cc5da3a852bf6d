/* A few rows times a weight whose codes stay packed: y[t, n] = sum_k x[t, k] w[n, k] + b[n].

   Words lie as `bitstream` packs them, [K / 32, BITS, N]: the outputs of one place are neighbours, so
   that a register takes LANES of them and each meets the same activation. With c the codes of a run
   of 32, g its group and m = 2^(BITS - 1):

       s[t, n] = sum_j x[t, j] c[j, n] - m sum_j x[t, j]           reads every word once
       y[t, n] += scale[g, n] s[t, n] + zero[g, n] sum_j x[t, j]

   A code is not shifted down. It is masked where it lies in its word, converted as that number, and
   meets an activation scaled by the power of two that makes up for it: three instructions a code,
   and exact. Codes that cross words or hold the sign of theirs are shifted. Up to four rows share
   one decoding. A thread takes neighbouring outputs, some hundreds at a time: its reads are long,
   and the sums of one piece stay in the first-level cache.

   Compiled by fused.py with BITS: 8, 4, 3 or 2. */

#include "native.h"

#define VECTORS 2
#define BLOCK (LANES * VECTORS)
#define PIECE 512
#define RUN 32
#define TOGETHER 4

INLINE Words load_words(const uint32_t *from) {
    Words found;
    memcpy(&found, from, sizeof found);
    return found;
}

/* Whether code j must be shifted down, and what its lowest bit is worth where it lies. */
INLINE int is_shifted(int j) { return j * BITS % 32 + BITS >= 32; }
INLINE float worth(int j) { return is_shifted(j) ? 1.0f : 1.0f / (float)(1u << j * BITS % 32); }

/* Code j of a run for the next LANES outputs, times 1 / worth(j); words of a place are `stride` on. */
INLINE Floats code(const uint32_t *run, long stride, int j) {
    const int word = j * BITS / 32, shift = j * BITS % 32;
    const uint32_t mask = (1u << BITS) - 1u;
    Words held = load_words(run + word * stride);
    if (shift + BITS > 32)
        held = (held >> shift | load_words(run + (word + 1) * stride) << (32 - shift)) & mask;
    else if (shift + BITS == 32)
        held = held >> shift;
    else
        held = held & mask << shift;
    return __builtin_convertvector((Ints)held, Floats);
}

/* One run of codes of BLOCK outputs, added to the sums of `rows` rows. A single row has two sums of
   its own: an addition takes four cycles, and others must begin meanwhile. */
INLINE void add_run(int rows, const uint32_t *run, long stride, const Number *scale,
                    const Number *zero, const float *x, long inputs, const float *totals, long runs,
                    float *sums) {
    Floats s[TOGETHER][VECTORS];
    for (int t = 0; t < rows; t++)
        for (int v = 0; v < VECTORS; v++)
            s[t][v] = (Floats){0} - (float)(1 << (BITS - 1)) * totals[t * runs];
    if (rows == 1)
        for (int v = 0; v < VECTORS; v++) s[1][v] = (Floats){0};
#pragma GCC unroll 32
    for (int j = 0; j < RUN; j++)
        for (int v = 0; v < VECTORS; v++) {
            const Floats c = code(run + v * LANES, stride, j);
            for (int t = 0; t < rows; t++) s[rows == 1 ? j & 1 : t][v] += c * x[t * inputs + j];
        }
    if (rows == 1)
        for (int v = 0; v < VECTORS; v++) s[0][v] += s[1][v];
    for (int v = 0; v < VECTORS; v++) {
        const Floats factor = load_numbers(scale + v * LANES);
        for (int t = 0; t < rows; t++) {
            float *at = sums + t * PIECE + v * LANES;
            Floats sum = load_floats(at) + s[t][v] * factor;
            if (zero) sum += load_numbers(zero + v * LANES) * totals[t * runs];
            store_floats(at, sum);
        }
    }
}

typedef struct {
    const uint32_t *words; /* [K / 32, BITS, N] */
    const Number *scale;   /* [G, N] */
    const Number *zero;    /* [G, N], or null */
    const Number *bias;    /* [N], or null */
    const float *x;        /* [T, K], each times worth(j) */
    const float *totals;   /* [T, K / 32]: sums of x over runs */
    Number *y;             /* [T, N] */
    long outputs, inputs, groups;
} Product;

/* Outputs first..end, at most PIECE of them, for rows row..row + rows. What is left beyond whole
   blocks is copied into one that is filled with zeros. */
INLINE void add_piece(const Product *p, int rows, long row, long first, long end) {
    float sums[TOGETHER * PIECE];
    memset(sums, 0, sizeof sums);
    const long runs = p->inputs / RUN, outputs = p->outputs;
    for (long r = 0; r < runs; r++) {
        const long at = r * p->groups / runs * outputs;
        const uint32_t *run = p->words + r * BITS * outputs;
        const float *x = p->x + row * p->inputs + r * RUN, *totals = p->totals + row * runs + r;
        for (long n = first; n < end; n += BLOCK) {
            const uint32_t *words = run + n;
            const Number *scale = p->scale + at + n, *zero = p->zero ? p->zero + at + n : 0;
            long stride = outputs;
            uint32_t last[BITS * BLOCK];
            Number scales[BLOCK], zeros[BLOCK];
            if (n + BLOCK > end) {
                const long left = end - n;
                memset(last, 0, sizeof last);
                memset(scales, 0, sizeof scales);
                memset(zeros, 0, sizeof zeros);
                for (int b = 0; b < BITS; b++)
                    memcpy(last + b * BLOCK, words + b * outputs, left * sizeof(uint32_t));
                memcpy(scales, scale, left * sizeof(Number));
                if (zero) memcpy(zeros, zero, left * sizeof(Number));
                words = last, stride = BLOCK, scale = scales, zero = zero ? zeros : 0;
            }
            add_run(rows, words, stride, scale, zero, x, p->inputs, totals, runs, sums + n - first);
        }
    }
    for (int t = 0; t < rows; t++)
        for (long n = first; n < end; n++) {
            const float sum = sums[t * PIECE + n - first] + (p->bias ? widen(p->bias[n]) : 0.0f);
            p->y[(row + t) * outputs + n] = narrow(sum);
        }
}

/* `scratch` holds T (K + K / 32) floats. Groups are whole runs. */
void low_bit_product(const Number *x, const uint32_t *words, const Number *scale, const Number *zero,
                     const Number *bias, Number *y, float *scratch, long rows, long outputs,
                     long inputs, long groups, int threads) {
    const long runs = inputs / RUN;
    float *totals = scratch + rows * inputs;
    float worths[RUN];
    for (int j = 0; j < RUN; j++) worths[j] = worth(j);
    for (long r = 0; r < rows * runs; r++) {
        Floats total = {0};
        for (int j = 0; j < RUN; j += LANES) {
            const Floats number = load_numbers(x + r * RUN + j);
            total += number;
            store_floats(scratch + r * RUN + j, number * load_floats(worths + j));
        }
        totals[r] = sum_of(total);
    }
    const Product p = {words, scale, zero, bias, scratch, totals, y, outputs, inputs, groups};
    const long parts = (outputs + threads * PIECE - 1) / (threads * PIECE) * threads;
    const long blocks = (outputs + parts * BLOCK - 1) / (parts * BLOCK), piece = blocks * BLOCK;
#pragma omp parallel for num_threads(threads) schedule(static)
    for (long first = 0; first < outputs; first += piece) {
        const long end = least(first + piece, outputs);
        long row = 0;
        for (; row + TOGETHER <= rows; row += TOGETHER) add_piece(&p, TOGETHER, row, first, end);
        if (row + 2 <= rows) add_piece(&p, 2, row, first, end), row += 2;
        if (row < rows) add_piece(&p, 1, row, first, end);
    }
}
