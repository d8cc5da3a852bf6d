/* Attention of one query row a sequence, over keys and values where they lie.

       s[h, j] = q[h] . k[j] / sqrt(D),   p = softmax(s),   o[h] = sum_j p[h, j] v[j]

   Keys lie in groups of `places` tokens, whose vectors are neighbours: a sequence's table says which
   groups hold its tokens, one after the other. A table of one group is a sequence that lies side by
   side.

   The query heads of a KV head go through its keys together, up to four at a time, so that each key
   is read and widened once. Keys are taken so many at once that their scores stay in the first-level
   cache, with a running maximum and sum (Milakov and Gimelshein, 2018); a thread takes a stretch of
   the keys of all heads, and the stretches are joined at the end as those are. */

#include <math.h>

#include "native.h"

#define BLOCK 64
#define TOGETHER 4
#define WIDEST 256

/* Adds `size` keys, which begin at `at`, to the state of `count` query heads that share a KV head:
   their largest score `most`, the `sum` of e^(s - most), and `o` [count, D], the same sum of values. */
INLINE void add_keys(int count, const float *q, const Number *keys, const Number *values,
                     const long *at, long size, long width, float *most, float *sum, float *o) {
    float weights[TOGETHER][BLOCK];
    for (long j = 0; j < size; j++) {
        const Number *key = keys + at[j];
        Floats dot[TOGETHER];
        for (int h = 0; h < count; h++) dot[h] = (Floats){0};
        for (long d = 0; d < width; d += LANES) {
            const Floats wide = load_numbers(key + d);
            for (int h = 0; h < count; h++) dot[h] += wide * load_floats(q + h * width + d);
        }
        for (int h = 0; h < count; h++) weights[h][j] = sum_of(dot[h]);
    }
    for (int h = 0; h < count; h++) {
        float largest = most[h], total = 0.0f;
        for (long j = 0; j < size; j++)
            largest = weights[h][j] > largest || weights[h][j] != weights[h][j] ? weights[h][j]
                                                                                : largest;
        for (long j = size; j % LANES; j++) weights[h][j] = -INFINITY;
        const float less = expf(most[h] - largest);
        for (long j = 0; j < size; j += LANES) {
            const Floats power = exp_of(load_floats(weights[h] + j) - largest);
            store_floats(weights[h] + j, power);
            total += sum_of(power);
        }
        most[h] = largest;
        sum[h] = sum[h] * less + total;
        for (long d = 0; d < width; d += LANES)
            store_floats(o + h * width + d, load_floats(o + h * width + d) * less);
    }
    for (long d = 0; d < width; d += LANES) {
        Floats found[TOGETHER];
        for (int h = 0; h < count; h++) found[h] = load_floats(o + h * width + d);
        for (long j = 0; j < size; j++) {
            const Floats wide = load_numbers(values + at[j] + d);
            for (int h = 0; h < count; h++) found[h] += wide * weights[h][j];
        }
        for (int h = 0; h < count; h++) store_floats(o + h * width + d, found[h]);
    }
}

typedef struct {
    const Number *keys, *values; /* of one KV head: from group to group `step` numbers, from place
                                    to place `place` */
    const int64_t *table;        /* a sequence's groups */
    long places, step, place;
} Side;

/* Keys first..end of a sequence, as `add_keys` adds them. */
INLINE void add_stretch(int count, const float *q, const Side *side, long first, long end,
                        long width, float *most, float *sum, float *o) {
    long at[BLOCK];
    while (first < end) {
        const long size = least(BLOCK, end - first);
        long group = first / side->places, place = first % side->places;
        for (long j = 0; j < size; j++) {
            at[j] = side->table[group] * side->step + place * side->place;
            if (++place == side->places) place = 0, group++;
        }
        add_keys(count, q, side->keys, side->values, at, size, width, most, sum, o);
        first += size;
    }
}

/* query [B, heads, D]; keys and values [groups, kv, places, D] with steps of `step`, `head` and
   `place` numbers; out [B, heads, D]. D is a multiple of LANES up to WIDEST. `tables` holds the
   sequences' groups, and `bounds` [B, 3] where a sequence's begin in it, and the first place of them
   that it sees and the end. `scratch` holds B heads (D + threads (D + 2)) floats. */
void decode_attention(const Number *query, const Number *keys, const Number *values,
                      const int64_t *tables, const int64_t *bounds, Number *out, float *scratch,
                      long batch, long heads, long kv_heads, long places, long width, long step,
                      long head, long place, int threads) {
    const long group = heads / kv_heads, all = batch * heads, state = width + 2;
    const float scale = 1.0f / sqrtf((float)width);
    float *q = scratch, *states = scratch + all * width;
    for (long i = 0; i < all * width; i += LANES) store_floats(q + i, load_numbers(query + i) * scale);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; t++)
        for (long b = 0; b < batch; b++) {
            const long low = bounds[3 * b + 1], seen = bounds[3 * b + 2] - low;
            const long first = low + seen * t / threads, end = low + seen * (t + 1) / threads;
            for (long kv = 0; kv < kv_heads; kv++)
                for (long g = 0; g < group; g += TOGETHER) {
                    const long h = b * heads + kv * group + g, count = least(TOGETHER, group - g);
                    const Side side = {keys + kv * head, values + kv * head,
                                       tables + bounds[3 * b], places, step, place};
                    float most[TOGETHER], sum[TOGETHER], o[TOGETHER * WIDEST];
                    for (int i = 0; i < TOGETHER; i++) most[i] = -INFINITY, sum[i] = 0.0f;
                    memset(o, 0, sizeof o);
                    const float *rows = q + h * width;
                    if (count == 4)
                        add_stretch(4, rows, &side, first, end, width, most, sum, o);
                    else if (count == 3)
                        add_stretch(3, rows, &side, first, end, width, most, sum, o);
                    else if (count == 2)
                        add_stretch(2, rows, &side, first, end, width, most, sum, o);
                    else
                        add_stretch(1, rows, &side, first, end, width, most, sum, o);
                    for (long i = 0; i < count; i++) {
                        float *to = states + ((long)t * all + h + i) * state;
                        to[0] = most[i], to[1] = sum[i];
                        memcpy(to + 2, o + i * width, width * sizeof(float));
                    }
                }
        }
    for (long h = 0; h < all; h++) {
        float most = -INFINITY, sum = 0.0f, o[WIDEST];
        memset(o, 0, sizeof o);
        for (int t = 0; t < threads; t++) {
            const float *from = states + ((long)t * all + h) * state;
            if (from[1] == 0.0f) continue; /* a stretch without keys */
            const float largest = from[0] > most || from[0] != from[0] ? from[0] : most;
            const float less = expf(most - largest), more = expf(from[0] - largest);
            sum = sum * less + from[1] * more;
            for (long d = 0; d < width; d += LANES)
                store_floats(o + d, load_floats(o + d) * less + load_floats(from + 2 + d) * more);
            most = largest;
        }
        for (long d = 0; d < width; d += LANES)
            store_numbers(out + h * width + d, load_floats(o + d) / sum);
    }
}
