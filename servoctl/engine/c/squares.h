/* The sum of COUNT squares, in eight parts that do not wait for one another. */
static void OPERATION(const V* A, V* total) {
  V part[8];
  for (int k = 0; k < 8; ++k) part[k] = number(0.0);
  for (int i = 0; i + 8 <= COUNT; i += 8) for (int k = 0; k < 8; ++k) part[k] += A[i + k] * A[i + k];
  for (int k = 0; k < COUNT % 8; ++k) part[k] += A[COUNT / 8 * 8 + k] * A[COUNT / 8 * 8 + k];
  *total = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]));
}
