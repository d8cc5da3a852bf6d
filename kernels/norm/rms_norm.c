/* y = x g sqrt(D) / hypot(|x|, sqrt(D eps)): x float32 [T, D], y numbers, one row after another. What
   D leaves beyond whole vectors goes one by one. */

#include <math.h>

#include "native.h"

void rms_norm(const float *x, const float *gain, float floor, Number *y, long rows, long width) {
    const long whole = width / LANES * LANES;
    for (long t = 0; t < rows; t++, x += width, y += width) {
        Floats squares = {0};
        for (long d = 0; d < whole; d += LANES) {
            const Floats numbers = load_floats(x + d);
            squares += numbers * numbers;
        }
        float square = sum_of(squares);
        for (long d = whole; d < width; d++) square += x[d] * x[d];
        const float factor = 1.0f / sqrtf(square + floor * floor);
        for (long d = 0; d < whole; d += LANES)
            store_numbers(y + d, load_floats(x + d) * load_floats(gain + d) * factor);
        for (long d = whole; d < width; d++) y[d] = narrow(x[d] * gain[d] * factor);
    }
}
