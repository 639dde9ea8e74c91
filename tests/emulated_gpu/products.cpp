// Products of the GPU that is none: what this program calls of cuBLASLt, with its numbers; and as much of cuBLAS and
// cuRAND as it takes to open a device, which no training uses.
#include <cstdint>
#include <cstring>
#include <vector>

#include "numbers.hpp"
#include "streams.hpp"

using namespace emulated;

namespace {

struct Layout {
    int type;
    uint64_t rows, cols;
    int64_t leading, stride = 0;
    int32_t batch = 1;
};

struct Product {
    int32_t transposed[2] = {0, 0};
    int epilogue = 1;  // 4: a bias, 512: sums of the columns of b
    void* vector = nullptr;
    int vector_type = F32;
    int64_t vector_stride = 0;
};

void require(const char* at, const Layout& layout, const char* what) {
    if (!layout.rows || !layout.cols) return;
    require_on_gpu(at, ((layout.cols - 1) * layout.leading + layout.rows) * bytes_of(layout.type), what);
}

// op(matrix) by columns, `rows` long each.
std::vector<float> widened(const char* from, const Layout& layout, bool transposed) {
    size_t rows = transposed ? layout.cols : layout.rows, cols = transposed ? layout.rows : layout.cols;
    std::vector<float> all(rows * cols);
    for (size_t col = 0; col < cols; col++) {
        for (size_t row = 0; row < rows; row++) {
            size_t index = transposed ? row * layout.leading + col : col * layout.leading + row;
            all[col * rows + row] = widen(from, layout.type, index);
        }
    }
    return all;
}

// An algorithm is its number: those with odd ones add up from the end, which the bits of a sum show.
constexpr int ALGORITHMS = 8;

struct Algorithm {
    uint64_t number, reserved[7];
};

void multiply(const Product& product, bool from_end, const char* a_from, const Layout& a, const char* b_from,
              const Layout& b, float beta, char* to, const Layout& out, char* vector) {
    size_t m = out.rows, n = out.cols, k = product.transposed[0] ? a.rows : a.cols;
    if ((product.transposed[0] ? a.cols : a.rows) != m || (product.transposed[1] ? b.cols : b.rows) != k ||
        (product.transposed[1] ? b.rows : b.cols) != n) {
        fail("the sizes of a product do not fit");
    }
    require(a_from, a, "a factor of a product");
    require(b_from, b, "a factor of a product");
    require(to, out, "a product");
    std::vector<float> left = widened(a_from, a, product.transposed[0]);
    std::vector<float> right = widened(b_from, b, product.transposed[1]);
    std::vector<float> sums(m);
    for (size_t col = 0; col < n; col++) {
        for (size_t row = 0; row < m; row++) {
            sums[row] = beta != 0 ? beta * widen(to, out.type, col * out.leading + row) : 0.0f;
            if (product.epilogue == 4) sums[row] += widen(vector, product.vector_type, row);
        }
        float of_column = 0;
        for (size_t i = 0; i < k; i++) {
            size_t depth = from_end ? k - 1 - i : i;
            float factor = right[col * k + depth];
            of_column += factor;
            const float* column = &left[depth * m];
            for (size_t row = 0; row < m; row++) sums[row] += column[row] * factor;
        }
        for (size_t row = 0; row < m; row++) narrow(to, out.type, col * out.leading + row, sums[row]);
        if (product.epilogue == 512) narrow(vector, product.vector_type, col, of_column);
    }
}

template <typename T>
int set(T& to, const void* from, size_t bytes) {
    if (bytes != sizeof(T)) fail("an attribute has %zu bytes instead of %zu", bytes, sizeof(T));
    return std::memcpy(&to, from, bytes), 0;
}

}  // namespace

#define FUNCTION extern "C" __attribute__((visibility("default"))) int

FUNCTION cublasLtCreate(void** handle) { return *handle = new int, 0; }
FUNCTION cublasLtDestroy(void* handle) { return delete static_cast<int*>(handle), 0; }
FUNCTION cublasLtMatmulDescCreate(void** product, int, int) { return *product = new Product, 0; }
FUNCTION cublasLtMatmulDescDestroy(void* product) { return delete static_cast<Product*>(product), 0; }
FUNCTION cublasLtMatmulDescSetAttribute(void* handle, int attribute, const void* value, size_t bytes) {
    auto* product = static_cast<Product*>(handle);
    switch (attribute) {
        case 3: return set(product->transposed[0], value, bytes);
        case 4: return set(product->transposed[1], value, bytes);
        case 7: return set(product->epilogue, value, bytes);
        case 8: return set(product->vector, value, bytes);
        case 10: return set(product->vector_stride, value, bytes);
        case 26: return set(product->vector_type, value, bytes);
        default: fail("attribute %d of a product is not emulated", attribute);
    }
}
FUNCTION cublasLtMatrixLayoutCreate(void** layout, int type, uint64_t rows, uint64_t cols, int64_t leading) {
    return *layout = new Layout{type, rows, cols, leading}, 0;
}
FUNCTION cublasLtMatrixLayoutDestroy(void* layout) { return delete static_cast<Layout*>(layout), 0; }
FUNCTION cublasLtMatrixLayoutSetAttribute(void* layout, int attribute, const void* value, size_t bytes) {
    if (attribute == 5) return set(static_cast<Layout*>(layout)->batch, value, bytes);
    if (attribute == 6) return set(static_cast<Layout*>(layout)->stride, value, bytes);
    fail("attribute %d of a matrix is not emulated", attribute);
}
FUNCTION cublasLtMatmulPreferenceCreate(void** preference) { return cublasLtCreate(preference); }
FUNCTION cublasLtMatmulPreferenceDestroy(void* preference) { return cublasLtDestroy(preference); }
FUNCTION cublasLtMatmulPreferenceSetAttribute(void*, int, const void*, size_t) { return 0; }

struct Found {
    Algorithm algorithm;
    size_t workspace_bytes;
    int state;
    float waves;
    int reserved[4];
};
FUNCTION cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int asked, Found* found,
                                        int* count) {
    *count = asked < ALGORITHMS ? asked : ALGORITHMS;
    for (int i = 0; i < *count; i++) found[i] = {{uint64_t(i), {}}, 0, 0, 1, {}};
    return 0;
}
FUNCTION cublasLtMatmulAlgoCheck(void*, void*, void*, void*, void*, void*, const Algorithm* algorithm, Found* found) {
    if (algorithm->number >= ALGORITHMS) return 7;
    return *found = {*algorithm, 0, 0, 1, {}}, 0;
}
extern "C" __attribute__((visibility("default"))) size_t cublasLtGetVersion() { return 130000; }
FUNCTION cublasLtMatmul(void*, void* described, const float* alpha, const void* a, void* a_layout, const void* b,
                        void* b_layout, const float* beta, const void* c, void*, void* d, void* d_layout,
                        const Algorithm* algorithm, void*, size_t, void* stream) {
    if (*alpha != 1 || c != d) fail("a product is scaled, or added to another matrix");
    auto product = *static_cast<Product*>(described);
    auto left = *static_cast<Layout*>(a_layout), right = *static_cast<Layout*>(b_layout);
    auto out = *static_cast<Layout*>(d_layout);
    float factor = *beta;
    bool from_end = algorithm->number % 2;
    auto lock = emulated::locked();
    emulated::queue(emulated::stream_of(stream), [=] {
        for (int64_t i = 0; i < out.batch; i++) {
            auto at = [i](const void* start, const Layout& layout) {
                return static_cast<const char*>(start) + i * layout.stride * int64_t(bytes_of(layout.type));
            };
            auto* vector = static_cast<char*>(product.vector);
            if (vector) vector += i * product.vector_stride * int64_t(bytes_of(product.vector_type));
            auto* to = const_cast<char*>(at(d, out));
            multiply(product, from_end, at(a, left), left, at(b, right), right, factor, to, out, vector);
        }
        return true;
    });
    return 0;
}

FUNCTION cublasCreate_v2(void** handle) { return *handle = new int, 0; }
FUNCTION cublasDestroy_v2(void* handle) { return delete static_cast<int*>(handle), 0; }
FUNCTION cublasSetStream_v2(void*, void*) { return 0; }
FUNCTION curandCreateGenerator(void** generator, int) { return *generator = new int, 0; }
FUNCTION curandDestroyGenerator(void* generator) { return delete static_cast<int*>(generator), 0; }
FUNCTION curandSetPseudoRandomGeneratorSeed(void*, unsigned long long) { return 0; }
FUNCTION curandSetStream(void*, void*) { return 0; }
