/* The sum of COUNT squares. */
static void SQUARES(const V* A, V* total) {
  V a[ROOM(COUNT)];
  memset(a, 0, sizeof a);
  memcpy(a, A, COUNT * sizeof *a);
  *total = dot(a, a, COUNT);
}
#undef SQUARES
#undef COUNT
