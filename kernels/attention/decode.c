/* Attention of one query row a sequence, over keys and values that lie side by side.

       s[h, j] = q[h] . k[j] / sqrt(D),   p = softmax(s),   o[h] = sum_j p[h, j] v[j]

   The query heads of a KV head go through its keys together, up to four at a time, so that each key
   is read and widened once. Keys are taken in blocks that stay in the first-level cache, with a
   running maximum and sum (Milakov and Gimelshein, 2018); a thread takes a stretch of the keys of
   all heads, and the stretches are joined at the end as blocks are. */

#include <math.h>

#include "native.h"

#define BLOCK 64
#define TOGETHER 4
#define WIDEST 256

/* Adds keys first..end to the state of `count` query heads that share a KV head: their largest score
   `most`, the `sum` of e^(s - most), and `o` [count, D], the same sum of values. */
INLINE void add_keys(int count, const float *q, const Number *keys, const Number *values, long place,
                     long first, long end, long width, float *most, float *sum, float *o) {
    float weights[TOGETHER][BLOCK];
    for (long block = first; block < end; block += BLOCK) {
        const long size = least(BLOCK, end - block);
        for (long j = 0; j < size; j++) {
            const Number *key = keys + (block + j) * place;
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
                largest = weights[h][j] > largest || weights[h][j] != weights[h][j]
                              ? weights[h][j] : largest;
            for (long j = size; j < BLOCK; j++) weights[h][j] = -INFINITY;
            const float less = expf(most[h] - largest);
            for (long j = 0; j < BLOCK; j += LANES) {
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
                const Floats wide = load_numbers(values + (block + j) * place + d);
                for (int h = 0; h < count; h++) found[h] += wide * weights[h][j];
            }
            for (int h = 0; h < count; h++) store_floats(o + h * width + d, found[h]);
        }
    }
}

/* query [B, heads, D]; keys and values [B, kv, S, D] with steps of `row`, `head` and `place` numbers;
   out [B, heads, D]. D is a multiple of LANES up to WIDEST. `scratch` holds
   B heads (D + threads (D + 2)) floats. */
void decode_attention(const Number *query, const Number *keys, const Number *values, Number *out,
                      float *scratch, long batch, long heads, long kv_heads, long places, long width,
                      long row, long head, long place, int threads) {
    const long group = heads / kv_heads, all = batch * heads, state = width + 2;
    const float scale = 1.0f / sqrtf((float)width);
    float *q = scratch, *states = scratch + all * width;
    for (long i = 0; i < all * width; i += LANES) store_floats(q + i, load_numbers(query + i) * scale);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; t++) {
        const long first = places * t / threads, end = places * (t + 1) / threads;
        for (long b = 0; b < batch; b++)
            for (long kv = 0; kv < kv_heads; kv++)
                for (long g = 0; g < group; g += TOGETHER) {
                    const long h = b * heads + kv * group + g, count = least(TOGETHER, group - g);
                    const Number *k = keys + b * row + kv * head, *v = values + b * row + kv * head;
                    float most[TOGETHER], sum[TOGETHER], o[TOGETHER * WIDEST];
                    for (int i = 0; i < TOGETHER; i++) most[i] = -INFINITY, sum[i] = 0.0f;
                    memset(o, 0, sizeof o);
                    const float *rows = q + h * width;
                    if (count == 4)
                        add_keys(4, rows, k, v, place, first, end, width, most, sum, o);
                    else if (count == 3)
                        add_keys(3, rows, k, v, place, first, end, width, most, sum, o);
                    else if (count == 2)
                        add_keys(2, rows, k, v, place, first, end, width, most, sum, o);
                    else
                        add_keys(1, rows, k, v, place, first, end, width, most, sum, o);
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
