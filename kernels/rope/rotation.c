/* y = x [cos, cos] + roll(x, D / 2) [-sin, sin] for heads of D numbers: x [T, heads, D] with a step of
   `row` numbers from token to token, cosine and signed sine float32 [T, D], y [T, heads, D]. D / 2 is
   a multiple of LANES. */

#include "native.h"

void rotate(const Number *x, const float *cosine, const float *signed_sine, Number *y, long rows,
            long heads, long width, long row) {
    const long half = width / 2;
    for (long t = 0; t < rows; t++, cosine += width, signed_sine += width)
        for (long h = 0; h < heads; h++, y += width) {
            const Number *from = x + t * row + h * width;
            for (long d = 0; d < half; d += LANES) {
                const Floats low = load_numbers(from + d), high = load_numbers(from + half + d);
                store_numbers(y + d, low * load_floats(cosine + d)
                                         + high * load_floats(signed_sine + d));
                store_numbers(y + half + d, high * load_floats(cosine + half + d)
                                                + low * load_floats(signed_sine + half + d));
            }
        }
}
