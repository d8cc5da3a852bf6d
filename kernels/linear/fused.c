/* A weight whose codes stay packed, in panels of PANEL outputs: its product with a few rows, the
   weight made dense, and rows of it looked up.

       w[n, k] = scale[g, n] (c[n, k] - m) + zero[g, n],   m = 2^(BITS - 1), g the group of k
       y[t, n] = sum_k x[t, k] w[n, k] + b[n]

   Words lie as [N / PANEL, K / RUN, BITS, PANEL], scales and zeros as [N / PANEL, G, PANEL]: what a
   panel needs is one stretch of memory, read from its first byte to its last, which is what
   processors fetch ahead. Outputs of one place are neighbours, so that a register takes LANES of
   them and each meets the same activation. Of a run of RUN codes:

       s[t, n] = sum_j x[t, j] c[j, n] - m sum_j x[t, j]           reads every word once
       y[t, n] += scale[g, n] s[t, n] + zero[g, n] sum_j x[t, j]

   A code is not shifted down. It is masked where it lies in its word, converted as that number, and
   meets an activation scaled by the power of two that makes up for it: three instructions a code,
   and exact. Codes that cross words or hold the sign of theirs are shifted. Up to four rows share
   one decoding; sums are as many as registers hold, since an addition takes four cycles and others
   must begin meanwhile.

   Compiled by fused.py with BITS: 8, 4, 3 or 2. */

#include "native.h"

#define PANEL 32
#define RUN 32
#define ALL (PANEL / LANES)
#define SUMS 8
#define TOGETHER 4
#define BLOCK 32
#define AHEAD 512

/* Keeps loads where they are written: registers are too few for the activations of a whole run, and
   a compiler that loads them all first has to put them back into memory. */
#define IN_ORDER __asm__ volatile("" ::: "memory")

INLINE Words load_words(const uint32_t *from) {
    Words found;
    memcpy(&found, from, sizeof found);
    return found;
}

/* Whether code j must be shifted down, and what its lowest bit is worth where it lies. */
INLINE int is_shifted(int j) { return j * BITS % 32 + BITS >= 32; }
INLINE float worth(int j) { return is_shifted(j) ? 1.0f : 1.0f / (float)(1u << j * BITS % 32); }

/* Code j of a run for LANES outputs, times 1 / worth(j). */
INLINE Floats code(const uint32_t *run, int j) {
    const int word = j * BITS / 32, shift = j * BITS % 32;
    const uint32_t mask = (1u << BITS) - 1u;
    Words held = load_words(run + word * PANEL);
    if (shift + BITS > 32)
        held = (held >> shift | load_words(run + (word + 1) * PANEL) << (32 - shift)) & mask;
    else if (shift + BITS == 32)
        held = held >> shift;
    else
        held = held & mask << shift;
    return __builtin_convertvector((Ints)held, Floats);
}

/* One run of codes of `vectors` registers of outputs, added to the sums of `rows` rows; a row of a
   register has `chains` sums of its own. */
INLINE void add_run(int rows, int vectors, int chains, const uint32_t *run, const Number *scale,
                    const Number *zero, const float *x, long inputs, const float *totals, long runs,
                    float *sums) {
    Floats s[TOGETHER * ALL * SUMS];
    for (int t = 0; t < rows; t++)
        for (int v = 0; v < vectors; v++)
            for (int c = 0; c < chains; c++) {
                const float less = c ? 0.0f : (float)(1 << (BITS - 1)) * totals[t * runs];
                s[(t * vectors + v) * chains + c] = (Floats){0} - less;
            }
#pragma GCC unroll 32
    for (int j = 0; j < RUN; j++) {
        IN_ORDER;
        for (int v = 0; v < vectors; v++) {
            const Floats c = code(run + v * LANES, j);
            for (int t = 0; t < rows; t++)
                s[(t * vectors + v) * chains + j % chains] += c * x[t * inputs + j];
        }
    }
    for (int v = 0; v < vectors; v++) {
        const Floats factor = load_numbers(scale + v * LANES);
        for (int t = 0; t < rows; t++) {
            Floats one = s[(t * vectors + v) * chains];
            for (int c = 1; c < chains; c++) one += s[(t * vectors + v) * chains + c];
            float *at = sums + t * PANEL + v * LANES;
            Floats sum = load_floats(at) + one * factor;
            if (zero) sum += load_numbers(zero + v * LANES) * totals[t * runs];
            store_floats(at, sum);
        }
    }
}

typedef struct {
    const uint32_t *words; /* [N / PANEL, K / RUN, BITS, PANEL] */
    const Number *scale;   /* [N / PANEL, G, PANEL] */
    const Number *zero;    /* the same, or null */
    const Number *bias;    /* [N], or null */
    long outputs, inputs, groups;
} Weight;

/* Run r of a panel, and its scales or zeros. */
INLINE const uint32_t *words_of(const Weight *w, long panel, long r) {
    return w->words + (panel * (w->inputs / RUN) + r) * BITS * PANEL;
}
INLINE const Number *numbers_of(const Weight *w, const Number *numbers, long panel, long r) {
    const long g = r * w->groups / (w->inputs / RUN);
    return numbers ? numbers + (panel * w->groups + g) * PANEL : 0;
}

/* A panel's outputs of `rows` rows. `x` [rows, K], each times worth(j); `totals` [rows, K / RUN] its
   sums over runs; `y` [rows, N]. */
INLINE void multiply_panel(const Weight *w, int rows, const float *x, const float *totals, Number *y,
                           long panel) {
    const long runs = w->inputs / RUN;
    const int vectors = SUMS / rows < ALL ? SUMS / rows : ALL, chains = SUMS / (rows * vectors);
    float sums[TOGETHER * PANEL];
    memset(sums, 0, sizeof sums);
    for (long r = 0; r < runs; r++) {
        const uint32_t *run = words_of(w, panel, r);
        const Number *scale = numbers_of(w, w->scale, panel, r);
        const Number *zero = numbers_of(w, w->zero, panel, r);
        for (int b = 0; b < BITS * PANEL; b += 16) __builtin_prefetch(run + AHEAD + b);
        for (int v = 0; v < ALL; v += vectors) {
            const int n = v * LANES;
            add_run(rows, vectors, chains, run + n, scale + n, zero ? zero + n : 0, x + r * RUN,
                    w->inputs, totals + r, runs, sums + n);
        }
    }
    for (int t = 0; t < rows; t++)
        for (int v = 0; v < PANEL; v += LANES) {
            Floats sum = load_floats(sums + t * PANEL + v);
            if (w->bias) sum += load_numbers(w->bias + panel * PANEL + v);
            store_numbers(y + t * w->outputs + panel * PANEL + v, sum);
        }
}

/* `rows` rows of x in float32, each number times the worth of its code, and their sums over runs. */
INLINE void spread(const Number *x, float *wide, float *totals, long runs) {
    float worths[RUN];
    for (int j = 0; j < RUN; j++) worths[j] = worth(j);
    for (long r = 0; r < runs; r++) {
        Floats total = {0};
        for (int j = 0; j < RUN; j += LANES) {
            const Floats number = load_numbers(x + r * RUN + j);
            total += number;
            store_floats(wide + r * RUN + j, number * load_floats(worths + j));
        }
        totals[r] = sum_of(total);
    }
}

/* x [T, K] -> y [T, N]. `scratch` holds T (K + K / RUN) floats. A thread takes neighbouring panels,
   and BLOCK rows at a time, which stay in the second-level cache. */
void low_bit_product(const Number *x, const uint32_t *words, const Number *scale, const Number *zero,
                     const Number *bias, Number *y, float *scratch, long rows, long outputs,
                     long inputs, long groups, int threads) {
    const Weight w = {words, scale, zero, bias, outputs, inputs, groups};
    const long runs = inputs / RUN, panels = outputs / PANEL;
    float *totals = scratch + rows * inputs;
#pragma omp parallel for num_threads(threads) schedule(static) if (rows > TOGETHER)
    for (long t = 0; t < rows; t++)
        spread(x + t * inputs, scratch + t * inputs, totals + t * runs, runs);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int part = 0; part < threads; part++)
        for (long block = 0; block < rows; block += BLOCK) {
            const long end = least(block + BLOCK, rows), last = panels * (part + 1) / threads;
            for (long panel = panels * part / threads; panel < last; panel++)
                for (long t = block; t < end;) {
                    const float *wide = scratch + t * inputs, *total = totals + t * runs;
                    Number *to = y + t * outputs;
                    if (t + 4 <= end)
                        multiply_panel(&w, 4, wide, total, to, panel), t += 4;
                    else if (t + 2 <= end)
                        multiply_panel(&w, 2, wide, total, to, panel), t += 2;
                    else
                        multiply_panel(&w, 1, wide, total, to, panel), t += 1;
                }
        }
}

/* Outputs of panels first..end, dense: [(end - first) PANEL, K]. */
void low_bit_dense(const uint32_t *words, const Number *scale, const Number *zero, Number *dense,
                   long first, long end, long inputs, long groups, int threads) {
    const Weight w = {words, scale, zero, 0, 0, inputs, groups};
#pragma omp parallel for num_threads(threads) schedule(static)
    for (long panel = first; panel < end; panel++)
        for (long r = 0; r < inputs / RUN; r++) {
            const uint32_t *run = words_of(&w, panel, r);
            const Number *scales = numbers_of(&w, scale, panel, r);
            const Number *zeros = numbers_of(&w, zero, panel, r);
            Number *to = dense + (panel - first) * PANEL * inputs + r * RUN;
            for (int v = 0; v < PANEL; v += LANES) {
                const Floats factor = load_numbers(scales + v);
                const Floats more = zeros ? load_numbers(zeros + v) : (Floats){0};
                Number columns[RUN * LANES];
#pragma GCC unroll 32
                for (int j = 0; j < RUN; j++) {
                    IN_ORDER;
                    const Floats whole = code(run + v, j) * worth(j) - (float)(1 << (BITS - 1));
                    store_numbers(columns + j * LANES, whole * factor + more);
                }
                for (int n = 0; n < LANES; n++)
                    for (int j = 0; j < RUN; j++)
                        to[(v + n) * inputs + j] = columns[j * LANES + n];
            }
        }
}

/* Rows `ids` [count] of the weight: [count, K]. */
void low_bit_rows(const uint32_t *words, const Number *scale, const Number *zero, const int64_t *ids,
                  Number *rows, long count, long inputs, long groups) {
    const Weight w = {words, scale, zero, 0, 0, inputs, groups};
    const uint32_t mask = (1u << BITS) - 1u;
    for (long i = 0; i < count; i++) {
        const long panel = ids[i] / PANEL, n = ids[i] % PANEL;
        for (long r = 0; r < inputs / RUN; r++) {
            const uint32_t *run = words_of(&w, panel, r) + n;
            const float factor = widen(numbers_of(&w, scale, panel, r)[n]);
            const float more = zero ? widen(numbers_of(&w, zero, panel, r)[n]) : 0.0f;
            for (int j = 0; j < RUN; j++) {
                const int word = j * BITS / 32, shift = j * BITS % 32;
                uint32_t held = run[word * PANEL] >> shift;
                if (shift + BITS > 32) held |= run[(word + 1) * PANEL] << (32 - shift);
                const float whole = (float)(int)(held & mask) - (float)(1 << (BITS - 1));
                rows[i * inputs + r * RUN + j] = narrow(whole * factor + more);
            }
        }
    }
}
