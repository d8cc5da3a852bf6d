/* y = silu(gate) up, with gate and up side by side in x [T, 2 F]; silu(a) = a / (1 + e^-a). The sums
   are float32, and so is the product. */

#include <math.h>

#include "native.h"

void swiglu(const Number *x, Number *y, long rows, long width) {
    const long whole = width / LANES * LANES;
    for (long t = 0; t < rows; t++, x += 2 * width, y += width) {
        for (long d = 0; d < whole; d += LANES) {
            const Floats gate = load_numbers(x + d), up = load_numbers(x + width + d);
            store_numbers(y + d, gate / (1.0f + exp_of(-gate)) * up);
        }
        for (long d = whole; d < width; d++) {
            const float gate = widen(x[d]), up = widen(x[width + d]);
            y[d] = narrow(gate / (1.0f + expf(-gate)) * up);
        }
    }
}
