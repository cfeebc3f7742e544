/* JOIN of TERM of each of COUNT numbers, in eight parts that do not wait for one another. */
static void OPERATION(const V* x, V* y) {
  V part[8];
  for (int k = 0; k < 8; ++k) part[k] = number(0.0);
  for (int i = 0; i + 8 <= COUNT; i += 8) for (int k = 0; k < 8; ++k) part[k] = JOIN(part[k], TERM(x[i + k]));
  for (int k = 0; k < COUNT % 8; ++k) part[k] = JOIN(part[k], TERM(x[COUNT / 8 * 8 + k]));
  *y = JOIN(JOIN(JOIN(part[0], part[1]), JOIN(part[2], part[3])), JOIN(JOIN(part[4], part[5]), JOIN(part[6], part[7])));
}
