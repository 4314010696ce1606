/* The extension module vizsla.kernels._native: lets Python call the compiled kernels.

   A kernel is a function of this module. It takes arrays through the buffer protocol, numbers, bools and named tuples
   of them. It releases the GIL while it works. A kernel may have several overloads, one for each combination of
   argument types; a call that matches none of them raises a TypeError and compiles nothing.

   Only names of Python's stable ABI (3.11) are used. They are declared here and not taken from Python.h, so that a build
   needs no headers of Python, for this system or for another one; a test compares both.

   kernels.h, which the build writes, has the tables `kernels` and `level_names`, and `DIGEST`. */

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* ---- Python's stable ABI ---- */

#ifdef PYTHON_HEADERS
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#define EXPORT __attribute__((visibility("default")))
#else

typedef struct _object PyObject;
typedef struct _typeobject PyTypeObject;
typedef intptr_t Py_ssize_t;
typedef struct {
    void *buf;
    PyObject *obj;
    Py_ssize_t len, itemsize;
    int readonly, ndim;
    char *format;
    Py_ssize_t *shape, *strides, *suboffsets;
    void *internal;
} Py_buffer;
typedef PyObject *(*PyCFunction)(PyObject *, PyObject *);
typedef struct {
    const char *ml_name;
    PyCFunction ml_meth;
    int ml_flags;
    const char *ml_doc;
} PyMethodDef;
typedef struct {
    int slot;
    void *value;
} PyModuleDef_Slot;
typedef struct {
    struct {
        struct {
            Py_ssize_t ob_refcnt;
            PyTypeObject *ob_type;
        } ob_base;
        PyObject *(*m_init)(void);
        Py_ssize_t m_index;
        PyObject *m_copy;
    } m_base;
    const char *m_name, *m_doc;
    Py_ssize_t m_size;
    PyMethodDef *m_methods;
    PyModuleDef_Slot *m_slots;
    void *m_traverse, *m_clear, *m_free;
} PyModuleDef;

enum { METH_O = 8, METH_FASTCALL = 0x80, METH_NOARGS = 4, PyBUF_FORMAT = 4, PyBUF_ND = 8, Py_mod_exec = 2 };

#ifdef _WIN32
#define API __declspec(dllimport)
#define EXPORT __declspec(dllexport)
#else
#define API
#define EXPORT __attribute__((visibility("default")))
#endif

extern API PyTypeObject PyBool_Type, PyLong_Type, PyFloat_Type;
extern API PyObject *PyExc_TypeError, *PyExc_ValueError, *PyExc_RuntimeError;
extern API PyObject *PyModuleDef_Init(PyModuleDef *);
extern API int PyModule_AddStringConstant(PyObject *, const char *, const char *);
extern API PyObject *PyCFunction_NewEx(PyMethodDef *, PyObject *, PyObject *);
extern API PyObject *PyCapsule_New(void *, const char *, void *);
extern API void *PyCapsule_GetPointer(PyObject *, const char *);
extern API PyObject *PyUnicode_FromString(const char *);
extern API const char *PyUnicode_AsUTF8AndSize(PyObject *, Py_ssize_t *);
extern API PyObject *PyDict_New(void);
extern API int PyDict_SetItemString(PyObject *, const char *, PyObject *);
extern API PyObject *PyList_New(Py_ssize_t);
extern API int PyList_Append(PyObject *, PyObject *);
extern API PyObject *PyObject_Type(PyObject *);
extern API int PyType_IsSubtype(PyTypeObject *, PyTypeObject *);
extern API int PyObject_GetBuffer(PyObject *, Py_buffer *, int);
extern API void PyBuffer_Release(Py_buffer *);
extern API Py_ssize_t PyTuple_Size(PyObject *);
extern API PyObject *PyTuple_GetItem(PyObject *, Py_ssize_t);
extern API long long PyLong_AsLongLong(PyObject *);
extern API PyObject *PyLong_FromLongLong(long long);
extern API PyObject *PyLong_FromUnsignedLongLong(unsigned long long);
extern API PyObject *PyFloat_FromDouble(double);
extern API double PyFloat_AsDouble(PyObject *);
extern API PyObject *PyBool_FromLong(long);
extern API PyObject *Py_BuildValue(const char *, ...);
extern API int PyObject_IsTrue(PyObject *);
extern API PyObject *PyErr_Occurred(void);
extern API void PyErr_Clear(void);
extern API PyObject *PyErr_Format(PyObject *, const char *, ...);
extern API void *PyEval_SaveThread(void);
extern API void PyEval_RestoreThread(void *);
extern API void Py_DecRef(PyObject *);
#endif

/* ---- kernels ---- */

typedef int32_t (*Entry)(const int64_t *arguments, int64_t *result);
/* A kernel in machine code. An array is its address and its shape; a number is itself. Returns 0, else an error. */

enum { MAX_VALUES = 40, MAX_SLOTS = 120, CODE = 4 };

typedef struct {
    const char *codes; /* four letters for each value: see `describe` */
    const char *signature;
    char result; /* n: none, b: bool, i: signed, u: unsigned, f: floating point */
    Entry levels[8];
} Overload;

typedef struct {
    const char *name;   /* as in vizsla.engine.topk.keep_best */
    const char *shape;  /* a dot for each value; a tuple of values is in brackets */
    const Overload *overloads;
    int count;
} Kernel;

#include "kernels.h"

enum { KERNELS = sizeof kernels / sizeof *kernels, LEVEL_COUNT = sizeof level_names / sizeof *level_names };

typedef struct {
    const Kernel *kernel;
    int level;
} Bound; /* a kernel for one kind of processor */

static Bound bound[LEVEL_COUNT][KERNELS];
static PyMethodDef methods[KERNELS];
static const char CAPSULE[] = "vizsla.kernels";

typedef struct {
    char codes[MAX_VALUES][CODE]; /* the types that the arguments have */
    int64_t values[MAX_VALUES];   /* numbers */
    Py_buffer buffers[MAX_VALUES];
    char is_array[MAX_VALUES];
    int count;
} Call;

static int is_signed(char format) { return strchr("bhilqn", format) != NULL; }
static int is_unsigned(char format) { return strchr("BHILQN", format) != NULL; }

/* The code of an array: kind (i, u, f, b), bytes of an item, dimensions, w if it can be written. A dot for unknown ones. */
static void describe(const Py_buffer *view, char *code) {
    const char *format = view->format ? view->format : "B";
    if (*format == '@' || *format == '=' || *format == '<') format++;
    char letter = format[1] ? '?' + 1 : *format;
    code[0] = is_signed(letter) ? 'i' : is_unsigned(letter) ? 'u' : letter == 'f' || letter == 'd' ? 'f'
              : letter == '?' ? 'b' : '.';
    code[1] = (char)('0' + (view->itemsize < 10 ? view->itemsize : 0));
    code[2] = (char)('0' + (view->ndim < 10 ? view->ndim : 9));
    code[3] = view->readonly ? 'r' : 'w';
    if (view->itemsize && (uintptr_t)view->buf % (uintptr_t)view->itemsize) code[0] = '.';
}

/* A numpy scalar, which the buffer protocol shows as an array without dimensions. */
static int take_scalar(Call *call, const Py_buffer *view) {
    char code[CODE];
    describe(view, code);
    int64_t *value = &call->values[call->count];
    char kind = 0;
    if (code[0] == 'i' || code[0] == 'u') {
        *value = 0;
        memcpy(value, view->buf, (size_t)view->itemsize);
        int shift = 64 - 8 * (int)view->itemsize;
        if (code[0] == 'i') *value = (int64_t)((uint64_t)*value << shift) >> shift;
        if (code[0] == 'i' || *value >= 0) kind = 'I';
    } else if (code[0] == 'f' && view->itemsize == 8) {
        memcpy(value, view->buf, 8);
        kind = 'F';
    } else if (code[0] == 'f') {
        float narrow;
        memcpy(&narrow, view->buf, 4);
        double wide = narrow;
        memcpy(value, &wide, 8);
        kind = 'F';
    } else if (code[0] == 'b') {
        *value = *(const char *)view->buf != 0;
        kind = 'B';
    }
    memcpy(call->codes[call->count], (char[]){kind ? kind : '.', '.', '.', '.'}, CODE);
    return 0;
}

/* Read one argument that is not a tuple; returns -1 with a Python exception set. */
static int take(Call *call, PyObject *object) {
    int64_t *value = &call->values[call->count];
    char *code = call->codes[call->count];
    PyObject *type = PyObject_Type(object);
    if (!type) return -1;
    call->is_array[call->count] = 0;
    memcpy(code, "....", CODE);
    int failed = 0;
    if (type == (PyObject *)&PyBool_Type) {
        *value = PyObject_IsTrue(object);
        code[0] = 'B';
    } else if (type == (PyObject *)&PyLong_Type) {
        *value = PyLong_AsLongLong(object);
        failed = *value == -1 && PyErr_Occurred();
        code[0] = 'I';
    } else if (PyType_IsSubtype((PyTypeObject *)type, &PyFloat_Type)) {
        double number = PyFloat_AsDouble(object);
        memcpy(value, &number, 8);
        code[0] = 'F';
    } else {
        Py_buffer *view = &call->buffers[call->count];
        if (PyObject_GetBuffer(object, view, PyBUF_ND | PyBUF_FORMAT)) {
            PyErr_Clear(); /* something else, or an array that is not in C order */
            view->buf = NULL;
        } else if (view->ndim == 0) {
            failed = take_scalar(call, view);
            PyBuffer_Release(view);
        } else {
            describe(view, code);
            call->is_array[call->count] = 1;
        }
    }
    Py_DecRef(type);
    call->count++;
    return failed ? -1 : 0;
}

/* Read arguments in the shape of a kernel; returns the rest of the shape, or NULL if the arguments do not have it. */
static const char *take_all(Call *call, const char *shape, PyObject *const *arguments, PyObject *tuple, Py_ssize_t count) {
    Py_ssize_t i = 0;
    while (*shape && *shape != ')') {
        if (i == count || call->count == MAX_VALUES) return NULL;
        PyObject *object = tuple ? PyTuple_GetItem(tuple, i) : arguments[i];
        i++;
        if (*shape == '(') {
            Py_ssize_t size = PyTuple_Size(object);
            if (size < 0) {
                PyErr_Clear();
                return NULL;
            }
            shape = take_all(call, shape + 1, NULL, object, size);
            if (!shape || *shape != ')') return NULL;
        } else if (take(call, object)) {
            return NULL;
        }
        shape++;
    }
    return i == count ? shape : NULL;
}

/* Whether values have the types of an overload. A writable array may be passed where a read-only one is expected. */
static int fits(const Call *call, const char *codes) {
    for (int i = 0; i < call->count; i++, codes += CODE) {
        const char *code = call->codes[i];
        if (code[0] != codes[0] || code[1] != codes[1] || code[2] != codes[2]) return 0;
        if (codes[3] == 'w' && code[3] == 'r') return 0;
    }
    return 1;
}

static const Overload *find_overload(const Kernel *kernel, const Call *call) {
    for (int i = 0; i < kernel->count; i++)
        if (fits(call, kernel->overloads[i].codes)) return &kernel->overloads[i];
    return NULL;
}

/* Raise the TypeError for a call with argument types that the kernel was not compiled for. */
static void refuse(const Kernel *kernel, const Call *call, int has_shape) {
    char given[1024] = "other arguments";
    size_t end = 0;
    for (int i = 0; has_shape && i < call->count && end < sizeof given - 40; i++) {
        const char *code = call->codes[i];
        const char *kind = code[0] == 'i' ? "int" : code[0] == 'u' ? "uint" : code[0] == 'f' ? "float" : "bool";
        const char *comma = i ? ", " : "";
        const char *number = code[0] == 'I' ? "int64" : code[0] == 'F' ? "float64" : code[0] == 'B' ? "bool" : "something else";
        if (call->is_array[i] && code[0] != '.') {
            char size[4] = "";
            if (code[0] != 'b') snprintf(size, sizeof size, "%d", 8 * (code[1] - '0'));
            end += (size_t)snprintf(given + end, sizeof given - end, "%s%s%s%s[%.*s]", comma,
                                    code[3] == 'r' ? "const " : "", kind, size, 2 * (code[2] - '0') - 1, ":,:,:,:,:,:,:,:,:");
        } else {
            end += (size_t)snprintf(given + end, sizeof given - end, "%s%s", comma, number);
        }
    }
    char known[2048] = "";
    end = 0;
    for (int i = 0; i < kernel->count && end < sizeof known - 300; i++)
        end += (size_t)snprintf(known + end, sizeof known - end, "%s(%s)", i ? " or " : "", kernel->overloads[i].signature);
    PyErr_Format(PyExc_TypeError, "the kernel %s takes %s, not (%s)", kernel->name, known, given);
}

static PyObject *make_result(char kind, int64_t result) {
    double number;
    switch (kind) {
    case 'b': return PyBool_FromLong((long)(result & 1));
    case 'i': return PyLong_FromLongLong(result);
    case 'u': return PyLong_FromUnsignedLongLong((unsigned long long)result);
    case 'f': memcpy(&number, &result, 8); return PyFloat_FromDouble(number);
    default: return Py_BuildValue("");
    }
}

static PyObject *run(const Bound *it, Call *call) {
    const Overload *overload = find_overload(it->kernel, call);
    if (!overload) {
        refuse(it->kernel, call, 1);
        return NULL;
    }
    int64_t slots[MAX_SLOTS], result = 0;
    int slot = 0;
    for (int i = 0; i < call->count; i++) {
        if (!call->is_array[i]) {
            slots[slot++] = call->values[i];
            continue;
        }
        const Py_buffer *view = &call->buffers[i];
        slots[slot++] = (int64_t)(intptr_t)view->buf;
        for (int axis = 0; axis < view->ndim; axis++) slots[slot++] = view->shape[axis];
    }
    void *thread = PyEval_SaveThread();
    int32_t code = overload->levels[it->level](slots, &result);
    PyEval_RestoreThread(thread);
    if (code) return PyErr_Format(PyExc_RuntimeError, "the kernel %s failed (%d)", it->kernel->name, (int)code);
    return make_result(overload->result, result);
}

static PyObject *call_kernel(PyObject *self, PyObject *const *arguments, Py_ssize_t count) {
    const Bound *it = PyCapsule_GetPointer(self, CAPSULE);
    if (!it) return NULL;
    Call call;
    call.count = 0;
    PyObject *result = NULL;
    if (take_all(&call, it->kernel->shape, arguments, NULL, count))
        result = run(it, &call);
    else if (!PyErr_Occurred())
        refuse(it->kernel, &call, 0);
    for (int i = 0; i < call.count; i++)
        if (call.is_array[i]) PyBuffer_Release(&call.buffers[i]);
    return result;
}

/* ---- processors ---- */

#if defined(__x86_64__)
#include <cpuid.h>

/* The highest x86-64 level that the processor has and the system supports: 2 or 3; 1 for older processors. */
static int x86_level(void) {
    unsigned a, b, c, d, seven = 0, more = 0, xcr0 = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return 1;
    unsigned one = c;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) seven = b;
    if (__get_cpuid(0x80000001u, &a, &b, &c, &d)) more = c;
    if (one >> 27 & 1) __asm__ volatile("xgetbv" : "=a"(xcr0), "=d"(d) : "c"(0));
    const unsigned v2 = 1u << 0 | 1u << 9 | 1u << 13 | 1u << 19 | 1u << 20 | 1u << 23; /* SSE3 to SSE4.2, POPCNT */
    const unsigned v3 = 1u << 12 | 1u << 22 | 1u << 28 | 1u << 29;                     /* FMA, MOVBE, AVX, F16C */
    const unsigned v3_seven = 1u << 3 | 1u << 5 | 1u << 8;                             /* BMI1, AVX2, BMI2 */
    if ((one & v2) != v2 || !(more & 1)) return 1;
    if ((one & v3) != v3 || (seven & v3_seven) != v3_seven || !(more >> 5 & 1) || (xcr0 & 6) != 6) return 2;
    return 3;
}

static int has_level(const char *name) { return name[strlen(name) - 1] - '0' <= x86_level(); }
#else
static int has_level(const char *name) { return name != NULL; }
#endif

/* ---- the module ---- */

static PyObject *list_levels(PyObject *self, PyObject *nothing) {
    (void)self, (void)nothing;
    PyObject *found = PyList_New(0);
    for (int level = 0; found && level < LEVEL_COUNT; level++) {
        if (!has_level(level_names[level])) continue;
        PyObject *name = PyUnicode_FromString(level_names[level]);
        if (!name || PyList_Append(found, name)) {
            Py_DecRef(found);
            found = NULL;
        }
        if (name) Py_DecRef(name);
    }
    return found;
}

static PyObject *list_kernels(PyObject *self, PyObject *level_name) {
    (void)self;
    const char *name = PyUnicode_AsUTF8AndSize(level_name, NULL);
    if (!name) return NULL;
    int level = 0;
    while (level < LEVEL_COUNT && (strcmp(name, level_names[level]) || !has_level(name))) level++;
    if (level == LEVEL_COUNT) return PyErr_Format(PyExc_ValueError, "this machine has no level %s", name);
    PyObject *found = PyDict_New();
    for (int i = 0; found && i < KERNELS; i++) {
        PyObject *self_of = PyCapsule_New(&bound[level][i], CAPSULE, NULL);
        PyObject *function = self_of ? PyCFunction_NewEx(&methods[i], self_of, NULL) : NULL;
        if (!function || PyDict_SetItemString(found, kernels[i].name, function)) {
            Py_DecRef(found);
            found = NULL;
        }
        if (function) Py_DecRef(function);
        if (self_of) Py_DecRef(self_of);
    }
    return found;
}

static PyObject *list_signatures(PyObject *self, PyObject *nothing) {
    (void)self, (void)nothing;
    PyObject *found = PyDict_New();
    for (int i = 0; found && i < KERNELS; i++) {
        PyObject *list = PyList_New(0);
        for (int j = 0; list && j < kernels[i].count; j++) {
            PyObject *text = PyUnicode_FromString(kernels[i].overloads[j].signature);
            if (!text || PyList_Append(list, text)) {
                Py_DecRef(list);
                list = NULL;
            }
            if (text) Py_DecRef(text);
        }
        if (!list || PyDict_SetItemString(found, kernels[i].name, list)) {
            Py_DecRef(found);
            found = NULL;
        }
        if (list) Py_DecRef(list);
    }
    return found;
}

static int fill(PyObject *module) {
    for (int i = 0; i < KERNELS; i++) {
        const char *name = strrchr(kernels[i].name, '.');
        methods[i] = (PyMethodDef){name ? name + 1 : kernels[i].name, (PyCFunction)(void (*)(void))call_kernel,
                                   METH_FASTCALL, kernels[i].overloads[0].signature};
        for (int level = 0; level < LEVEL_COUNT; level++) bound[level][i] = (Bound){&kernels[i], level};
    }
    return PyModule_AddStringConstant(module, "digest", DIGEST);
}

static PyMethodDef functions[] = {
    {"levels", list_levels, METH_NOARGS, "levels()\n--\n\nThe processor levels that this machine supports, best last."},
    {"kernels", list_kernels, METH_O, "kernels(level, /)\n--\n\nAll kernels for a processor level, by name."},
    {"signatures", list_signatures, METH_NOARGS, "signatures()\n--\n\nThe types that each kernel takes, by name."},
    {NULL, NULL, 0, NULL},
};
static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)fill}, {0, NULL}};
static PyModuleDef definition = {
    .m_base = {{1, NULL}, NULL, 0, NULL}, .m_name = "_native", .m_doc = "Compiled kernels.", .m_methods = functions,
    .m_slots = slots,
};

EXPORT PyObject *PyInit__native(void) { return PyModuleDef_Init(&definition); }
