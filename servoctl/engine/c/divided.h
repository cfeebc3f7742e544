/* COUNT numbers, divided by one. */
static void OPERATION(const V* A, const V* divisor, V* B) {
  const V inverse = number(1.0) / *divisor;
  for (int i = 0; i < COUNT; ++i) B[i] = A[i] * inverse;
}
