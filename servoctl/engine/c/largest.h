/* The largest of COUNT absolute values, in eight parts that do not wait for one another. */
static void LARGEST(const V* a, V* largest) {
  V part[8];
  for (int k = 0; k < 8; ++k) part[k] = number(0.0);
  for (int i = 0; i + 8 <= COUNT; i += 8) for (int k = 0; k < 8; ++k) part[k] = v_fmax(part[k], v_fabs(a[i + k]));
  for (int k = 0; k < COUNT % 8; ++k) part[k] = v_fmax(part[k], v_fabs(a[COUNT / 8 * 8 + k]));
  for (int k = 4; k > 0; k /= 2) for (int i = 0; i < k; ++i) part[i] = v_fmax(part[i], part[i + k]);
  *largest = part[0];
}
#undef LARGEST
#undef COUNT
