/* Whole runs, LANES at a time, keeping only metrics, so that memory does not grow with their length.

   A channel is a value of each row: one entry with its sign (size 0), or the Euclidean norm of `size` entries. The
   figures below are taken over rows 0, every, 2 every, .. and the last, and skip NaN. AREA is the integral of the
   square over time by trapezoids, SPAN the time that this covers, LATE the time of the last row in which the magnitude
   was above a band. */
enum { LEAST, GREATEST, LAST, AREA, SPAN, COUNT, FIRST, LATE, KEPT };

static inline V channel(const V* row, const long long* entries, long long size) {
  V value = row[entries[0]], total = number(0.0), found = number(0.0);
  if (size == 0) return value;
  if (size == 1) return v_fabs(value);
  for (long long i = 0; i < size; ++i) {
    value = row[entries[i]];
    total += keep(value == value, value * value);
    found += keep(value == value, number(1.0));
  }
  return select(found > 0.0, v_sqrt(total), number(NAN));
}

static void gather(V* kept, V x, double time, double elapsed, double band, M live) {
  V before = kept[LAST];
  M known = live & (x == x), both = known & (before == before);
  kept[LEAST] = select(known & invert(kept[LEAST] <= x), x, kept[LEAST]);
  kept[GREATEST] = select(known & invert(kept[GREATEST] >= x), x, kept[GREATEST]);
  kept[AREA] += keep(both, elapsed * ((x * x + before * before) / 2.0));
  kept[SPAN] += keep(both, number(elapsed));
  kept[FIRST] = select(known & (kept[COUNT] == 0.0), x, kept[FIRST]);
  kept[COUNT] += keep(known, number(1.0));
  kept[LATE] = select(known & (v_fabs(x) > band), number(time), kept[LATE]);
  kept[LAST] = select(live, x, before);
}

/* Simulates `runs` runs from times[0] to times[steps], or until *halt.

   Inputs: parameters, shape (runs, PARAMETERS); starts, shape (runs, SIZE); random numbers of step k of a run at
   random[which[run]][k], shape (steps + 1, RANDOM), with RANDOM possibly 0; channel c has sizes[c] entries from
   firsts[c] on, and a band. Outputs: metrics, shape (runs, channels, KEPT); statuses, shape (runs, codes): number of
   rows with each status; good: steps before the first with a status to stop at or a number that is not finite, or
   steps + 1; ends, shape (runs, SIZE): the state after these steps. A run that met such a step is not continued. */
void servoctl_batch(long long runs, long long steps, const double* times, long long every, const double* parameters,
    const double* starts, const double* random, const long long* which, long long status, long long stop_count,
    const double* stops, long long channels, const long long* firsts, const long long* sizes, const long long* entries,
    const double* bands, long long codes,
    const volatile long long* halt, double* metrics, double* statuses, long long* good, double* ends) {
  for (long long begin = 0; begin < runs && !*halt; begin += LANES) {
    V x[SIZE], next[SIZE], p[PARAMETERS + 1], w[RANDOM + 1], row[WIDTH], kept[channels + 1][KEPT], often[codes + 1];
    M live = number(0.0) == number(0.0);
    long long done[LANES];
    double before = times[0];
    for (int l = 0; l < LANES; ++l) {
      long long run = begin + l < runs ? begin + l : runs - 1; /* what is left of the lanes repeats the last run */
      for (int i = 0; i < SIZE; ++i) LANE(x[i], l) = starts[run * SIZE + i];
      for (int i = 0; i < PARAMETERS; ++i) LANE(p[i], l) = parameters[run * PARAMETERS + i];
      done[l] = steps + 1;
    }
    for (long long c = 0; c < channels; ++c)
      for (int i = 0; i < KEPT; ++i) kept[c][i] = number(i <= LAST || i >= FIRST ? NAN : 0.0);
    for (long long c = 0; c < codes; ++c) often[c] = number(0.0);
    for (long long k = 0; k <= steps && any(live) && !*halt; ++k) {
      M fine = live;
#if RANDOM
      for (int l = 0; l < LANES; ++l) {
        const double* own = random + (which[begin + l < runs ? begin + l : runs - 1] * (steps + 1) + k) * RANDOM;
        for (int i = 0; i < RANDOM; ++i) LANE(w[i], l) = own[i];
      }
#endif
      if (k < steps) {
        step(x, number(times[k]), number(times[k + 1] - times[k]), p, w, next, row);
        for (int i = 0; i < SIZE; ++i) fine = fine & sound(next[i]);
      } else {
        look(x, number(times[k]), p, w, next, row); /* the rates go nowhere */
        for (int i = 0; i < SIZE; ++i) next[i] = x[i];
      }
      for (long long s = 0; s < stop_count; ++s) fine = fine & (row[status] != stops[s]);
      if (any(live & invert(fine)))
        for (int l = 0; l < LANES; ++l) if (LANE(live, l) && !LANE(fine, l)) done[l] = k;
      live = fine;
      if (k % every == 0 || k == steps) {
        for (long long c = 0; c < channels; ++c)
          gather(kept[c], channel(row, entries + firsts[c], sizes[c]), times[k], times[k] - before, bands[c], live);
        for (long long c = 0; c < codes; ++c) often[c] += keep(live & (row[status] == (double)c), number(1.0));
        before = times[k];
      }
      for (int i = 0; i < SIZE; ++i) x[i] = select(live, next[i], x[i]);
    }
    for (int l = 0; l < LANES && begin + l < runs; ++l) {
      long long run = begin + l;
      for (long long c = 0; c < channels; ++c)
        for (int i = 0; i < KEPT; ++i) metrics[(run * channels + c) * KEPT + i] = LANE(kept[c][i], l);
      for (long long c = 0; c < codes; ++c) statuses[run * codes + c] = LANE(often[c], l);
      for (int i = 0; i < SIZE; ++i) ends[run * SIZE + i] = LANE(x[i], l);
      good[run] = done[l];
    }
  }
}
