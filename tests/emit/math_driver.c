/* Each function of a project's math file over arrays, for a test that loads this as a library. */
#include MATH

void many_expf(const float *x, float *y, int32_t count)
{
  for (int32_t i = 0; i < count; ++i) {
    y[i] = default_expf(x[i]);
  }
}

void many_add(const uint32_t *a, const uint32_t *b, uint32_t *sum, int32_t count)
{
  for (int32_t i = 0; i < count; ++i) {
    sum[i] = add(a[i], b[i]);
  }
}

void many_share(const uint32_t *part, const uint32_t *sum, int32_t *rounded, int32_t count)
{
  for (int32_t i = 0; i < count; ++i) {
    rounded[i] = share(part[i], parts_of(sum[i]));
  }
}

void many_dequantized(const int32_t *difference, const uint32_t *mantissa, uint32_t *value, int32_t count)
{
  for (int32_t i = 0; i < count; ++i) {
    value[i] = dequantized(difference[i], mantissa[i]);
  }
}
