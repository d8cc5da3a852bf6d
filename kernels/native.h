/* What the C functions share: vectors of LANES floats, and numbers of one of three types.

   Compiled with one of FLOAT32, BFLOAT16 and FLOAT16 defined: the type of weights and rows. Sums are
   float32 throughout. */

#ifndef LATENCY_WALL_NATIVE_H
#define LATENCY_WALL_NATIVE_H

#include <stdint.h>
#include <string.h>

#ifdef __F16C__
#include <immintrin.h>
#endif

#ifdef __AVX512F__
#define LANES 16
#else
#define LANES 8
#endif

#define INLINE static inline __attribute__((always_inline))

typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
typedef uint32_t Words __attribute__((vector_size(4 * LANES)));

#ifdef BFLOAT16
typedef uint16_t Number;
typedef uint16_t Numbers __attribute__((vector_size(2 * LANES)));

INLINE float widen(Number half) {
    uint32_t word = (uint32_t)half << 16;
    float number;
    memcpy(&number, &word, sizeof number);
    return number;
}

/* To the nearest, ties to even; what is not a number stays none. */
INLINE Number narrow(float number) {
    uint32_t word;
    memcpy(&word, &number, sizeof word);
    if ((word & 0x7fffffffu) > 0x7f800000u) return (Number)(word >> 16 | 0x40u);
    return (Number)((word + 0x7fffu + (word >> 16 & 1u)) >> 16);
}

INLINE Floats widen_all(Numbers halves) {
    return (Floats)(__builtin_convertvector(halves, Words) << 16);
}

INLINE Numbers narrow_all(Floats numbers) {
    Words words = (Words)numbers, rounded = (words + 0x7fffu + (words >> 16 & 1u)) >> 16;
    Words quiet = words >> 16 | 0x40u, none = (Words)((words & 0x7fffffffu) > 0x7f800000u);
    return __builtin_convertvector((quiet & none) | (rounded & ~none), Numbers);
}
#else
#ifdef FLOAT16
typedef _Float16 Number;
typedef _Float16 Numbers __attribute__((vector_size(2 * LANES)));
#else
typedef float Number;
typedef Floats Numbers;
#endif

INLINE float widen(Number number) { return (float)number; }
INLINE Number narrow(float number) { return (Number)number; }
#if defined FLOAT16 && defined __F16C__
/* gcc would convert a lane at a time. */
#ifdef __AVX512F__
INLINE Floats widen_all(Numbers numbers) { return (Floats)_mm512_cvtph_ps((__m256i)numbers); }
INLINE Numbers narrow_all(Floats numbers) { return (Numbers)_mm512_cvtps_ph((__m512)numbers, _MM_FROUND_TO_NEAREST_INT); }
#else
INLINE Floats widen_all(Numbers numbers) { return (Floats)_mm256_cvtph_ps((__m128i)numbers); }
INLINE Numbers narrow_all(Floats numbers) { return (Numbers)_mm256_cvtps_ph((__m256)numbers, _MM_FROUND_TO_NEAREST_INT); }
#endif
#else
INLINE Floats widen_all(Numbers numbers) { return __builtin_convertvector(numbers, Floats); }
INLINE Numbers narrow_all(Floats numbers) { return __builtin_convertvector(numbers, Numbers); }
#endif
#endif

INLINE long least(long a, long b) { return a < b ? a : b; }

INLINE Floats load_floats(const float *from) {
    Floats found;
    memcpy(&found, from, sizeof found);
    return found;
}

INLINE void store_floats(float *to, Floats numbers) { memcpy(to, &numbers, sizeof numbers); }

INLINE Floats load_numbers(const Number *from) {
    Numbers found;
    memcpy(&found, from, sizeof found);
    return widen_all(found);
}

INLINE void store_numbers(Number *to, Floats numbers) {
    Numbers narrowed = narrow_all(numbers);
    memcpy(to, &narrowed, sizeof narrowed);
}

INLINE float sum_of(Floats numbers) {
    float sum = 0.0f;
    for (int lane = 0; lane < LANES; lane++) sum += numbers[lane];
    return sum;
}

/* e^x, correct to a unit or two of float32's last place: e^x = 2^n e^r with |r| <= ln 2 / 2, e^r by
   its Taylor series to the seventh power. Below -87 it is 0, above 88 infinite; none of none. */
INLINE Floats exp_of(Floats x) {
    const Floats log2e = (Floats){0} + 1.44269504f;
    Floats shifted = x * log2e + 12582912.0f; /* 1.5 * 2^23: its low bits are the nearest whole */
    Floats whole = shifted - 12582912.0f;
    Floats r = x - whole * 0.693145752f - whole * 1.42860677e-6f;
    Floats power = (Floats){0} + 1.0f / 5040.0f;
    power = power * r + 1.0f / 720.0f;
    power = power * r + 1.0f / 120.0f;
    power = power * r + 1.0f / 24.0f;
    power = power * r + 1.0f / 6.0f;
    power = power * r + 0.5f;
    power = power * r + 1.0f;
    power = power * r + 1.0f;
    Words scale = ((Words)shifted + 127u) << 23;
    Floats found = power * (Floats)scale;
    Words low = (Words)(x < -87.0f), high = (Words)(x > 88.0f), none = (Words)(x != x);
    const Words infinite = (Words){0} + 0x7f800000u;
    Words bits = ((Words)found & ~(low | high | none)) | (infinite & high) | ((Words)x & none);
    return (Floats)bits;
}

#endif
