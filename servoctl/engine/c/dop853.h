/* Dormand and Prince's method of order 8 with its own steps, as SciPy's DOP853 takes them, from its coefficients:
   A (12, 12), B (12), C (12), E5 (13), E3 (13), and for outputs between two steps A (3, 16), C (3), D (4, 16).

   Source: Hairer, Norsett, Wanner 1993, II.5 and II.6. */
enum { STAGES = 12, ALL = 16 };

/* y = x + h sum of weights[j] k[j] over the first `count` */
static void combine(const double* x, double h, const double* weights, int count, double k[ALL][SIZE], double* y) {
  double sum[SIZE];
  for (int i = 0; i < SIZE; ++i) sum[i] = 0.0;
  for (int j = 0; j < count; ++j) for (int i = 0; i < SIZE; ++i) sum[i] += weights[j] * k[j][i];
  for (int i = 0; i < SIZE; ++i) y[i] = x[i] + h * sum[i];
}

/* Size of the error of a step from x to y, 1 where it is just allowed; NaN where it is not finite. */
static double error_of(const double* x, const double* y, double h, const double* E5, const double* E3,
    double k[ALL][SIZE], double rtol, double atol) {
  double fifth = 0.0, third = 0.0;
  for (int i = 0; i < SIZE; ++i) {
    double a = 0.0, b = 0.0, scale = atol + v_fmax(v_fabs(x[i]), v_fabs(y[i])) * rtol;
    for (int j = 0; j <= STAGES; ++j) a += E5[j] * k[j][i], b += E3[j] * k[j][i];
    fifth += (a / scale) * (a / scale);
    third += (b / scale) * (b / scale);
  }
  return fifth == 0.0 && third == 0.0 ? 0.0 : h * fifth / sqrt((fifth + 0.01 * third) * SIZE);
}

/* Coefficients of the polynomial between two states, of x - x0. */
static void between(const double* x, const double* y, double h, const double* D, double k[ALL][SIZE], double F[7][SIZE]) {
  for (int i = 0; i < SIZE; ++i) {
    F[0][i] = y[i] - x[i];
    F[1][i] = h * k[0][i] - F[0][i];
    F[2][i] = 2.0 * F[0][i] - h * (k[STAGES][i] + k[0][i]);
    for (int l = 0; l < 4; ++l) {
      F[3 + l][i] = 0.0;
      for (int j = 0; j < ALL; ++j) F[3 + l][i] += h * D[l * ALL + j] * k[j][i];
    }
  }
}

/* Takes at most `most` steps from times[0], states[0], up to `end`: gives times[k], states[k] and rows[k].
   progress: step to try, number of evaluations, number of outputs done. Each of outputs[], shape (asked,), that a step
   passes gives a row of taken_states and taken_rows. Returns the number of steps before the first that gets too small,
   or that ends in a status to stop at or a state that is not finite: the caller looks at that one. */
long long servoctl_dop853(long long most, double end, double rtol, double atol, const double* A, const double* p,
    long long status, long long stop_count, const double* stops, double* progress, double* times, double* states,
    double* rows, long long asked, const double* outputs, double* taken_states, double* taken_rows) {
  const double *B = A + 144, *C = B + 12, *E5 = C + 12, *E3 = E5 + 13, *A_more = E3 + 13, *C_more = A_more + 48;
  double k[ALL][SIZE], y[SIZE], F[7][SIZE], h = progress[0], most_growth = 10.0;
  long long good = 0;
  look(states, times[0], p, 0, k[0], rows);
  while (good < most && times[good] < end) {
    double t = times[good], next = t + h < end ? t + h : end, step = next - t;
    double *x = states + good * SIZE, *after = x + SIZE, *row = rows + (good + 1) * WIDTH;
    if (!(h >= 10.0 * (nextafter(t, INFINITY) - t))) break;
    for (int s = 1; s < STAGES; ++s) {
      double moment = t + C[s] * step;
      combine(x, step, A + s * STAGES, s, k, y);
      RATES(&moment, y, p, k[s]);
    }
    combine(x, step, B, STAGES, k, after);
    project(next, p, after);
    look(after, next, p, 0, k[STAGES], row);
    progress[1] += STAGES;
    double error = error_of(x, after, step, E5, E3, k, rtol, atol), growth = 0.9 * pow(error, -1.0 / 8.0);
    if (!(error < 1.0)) {
      h = step * (growth > 0.2 ? growth : 0.2);
      most_growth = 1.0;
      continue;
    }
    for (long long i = 0; i < stop_count; ++i) if (row[status] == stops[i]) goto leave;
    for (int i = 0; i < SIZE; ++i) if (!sound(after[i])) goto leave;
    long long done = (long long)progress[2];
    if (done < asked && outputs[done] <= next) {
      for (int s = 0; s < 3; ++s) {
        double moment = t + C_more[s] * step;
        combine(x, step, A_more + s * ALL, STAGES + 1 + s, k, y);
        RATES(&moment, y, p, k[STAGES + 1 + s]);
      }
      progress[1] += 3;
      between(x, after, step, C_more + 3, k, F);
    }
    for (; done < asked && outputs[done] <= next; ++done) {
      double z = (outputs[done] - t) / step, rates[SIZE], *place = taken_rows + done * WIDTH;
      for (int i = 0; i < SIZE; ++i) {
        double value = 0.0;
        for (int l = 6; l >= 0; --l) value = (value + F[l][i]) * (l % 2 ? 1.0 - z : z);
        y[i] = outputs[done] == next ? after[i] : x[i] + value;
      }
      if (outputs[done] != next) { project(outputs[done], p, y); }
      for (int i = 0; i < SIZE; ++i) taken_states[done * SIZE + i] = y[i];
      look(y, outputs[done], p, 0, rates, place);
      progress[1] += 1;
      for (long long i = 0; i < stop_count; ++i) if (place[status] == stops[i]) goto leave;
    }
    progress[2] = (double)done;
    h = step * (growth < most_growth ? growth : most_growth);
    most_growth = 10.0;
    for (int i = 0; i < SIZE; ++i) k[0][i] = k[STAGES][i];
    times[++good] = next;
  }
leave:
  progress[0] = h;
  return good;
}
