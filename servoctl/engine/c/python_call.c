/* A law as a function that Python calls without a layer between: (t, q, v) -> a copy of the inputs.

   Python.h is not everywhere where Python is: what is needed of its stable interface (PEP 384) stands here. */

#include <stddef.h>
#include <string.h>

typedef struct _object PyObject;
typedef struct {
  void *buf;
  PyObject *obj;
  ptrdiff_t len, itemsize;
  int readonly, ndim;
  char *format;
  ptrdiff_t *shape, *strides, *suboffsets;
  void *internal;
} Py_buffer;
typedef struct {
  const char *name;
  PyObject *(*call)(PyObject *, PyObject *const *, ptrdiff_t);
  int flags;
  const char *doc;
} PyMethodDef;

extern PyObject _Py_NoneStruct;
int PyObject_GetBuffer(PyObject *, Py_buffer *, int);
void PyBuffer_Release(Py_buffer *);
double PyFloat_AsDouble(PyObject *);
PyObject *PyErr_Occurred(void);
void PyErr_Clear(void);
void Py_IncRef(PyObject *);
char *PyBytes_AsString(PyObject *);
PyObject *PyTuple_GetItem(PyObject *, ptrdiff_t);
PyObject *PyObject_CallNoArgs(PyObject *);

enum { METH_FASTCALL = 0x80, FORMAT_AND_ND = 0x0c /* PyBUF_FORMAT | PyBUF_ND */ };

struct law {
  void (*function)(const double **, double **);
  const double **arguments;
  double **results;
  double *t, *q, *v;
  ptrdiff_t n;
};

/* Copies a vector of n doubles; 0 if the object is anything else. */
static int copied(PyObject *object, double *into, ptrdiff_t n) {
  Py_buffer vector;
  if (PyObject_GetBuffer(object, &vector, FORMAT_AND_ND) != 0) return 0;
  const int fits = vector.ndim == 1 && vector.shape[0] == n && vector.format && strcmp(vector.format, "d") == 0;
  if (fits) memcpy(into, vector.buf, (size_t) n * sizeof(double));
  PyBuffer_Release(&vector);
  return fits;
}

/* self: (struct law as bytes, method that copies the inputs, ...); None if an argument is not as expected. */
static PyObject *call(PyObject *self, PyObject *const *arguments, ptrdiff_t count) {
  const struct law *law = (const struct law *) (const void *) PyBytes_AsString(PyTuple_GetItem(self, 0));
  if (count == 3) {
    const double t = PyFloat_AsDouble(arguments[0]);
    if (!(t == -1.0 && PyErr_Occurred()) && copied(arguments[1], law->q, law->n) && copied(arguments[2], law->v, law->n)) {
      *law->t = t;
      law->function(law->arguments, law->results);
      return PyObject_CallNoArgs(PyTuple_GetItem(self, 1));
    }
    PyErr_Clear();
  }
  Py_IncRef(&_Py_NoneStruct);
  return &_Py_NoneStruct;
}

static PyMethodDef method = {"law", call, METH_FASTCALL, NULL};

void *servoctl_method(void) { return &method; }
