// A CUDA driver without a GPU: memory is the host's, and work waits in its stream until somebody waits for it.
//
// The clock of this GPU is virtual: it moves by what each piece of work says that it takes, so that what events measure
// is known exactly. What the environment says, at each call: FAKE_CUDA_GPUS (how many there are), FAKE_CUDA_CAPABILITY
// ("87"), FAKE_CUDA_L2 (bytes), FAKE_CUDA_FAIL ("function:code", or "function:crash").
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <unistd.h>
#include <vector>

namespace {

enum { OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_CONTEXT = 201,
       INVALID_HANDLE = 400, NOT_READY = 600, CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901 };

const uint64_t MEMORY = 1ull << 30;
const double BYTES_A_NS = 100;

struct Work { std::function<void()> act; uint64_t ns; };
struct Stream { std::vector<Work> waiting; bool capturing = false, spoilt = false; std::vector<Work> captured; };
struct Event { bool done = false; uint64_t at = 0; Stream* stream = nullptr; };
using Graph = std::vector<Work>;

std::string calls;
std::map<uint64_t, size_t> memory;
size_t used = 0;
Stream null_stream;
std::vector<Stream*> streams{&null_stream};
uint64_t now_ns = 0;
pid_t owner = 0;
thread_local bool current = false;

const char* env(const char* name, const char* otherwise) { const char* s = getenv(name); return s ? s : otherwise; }

int gpus() {
    const char* visible = getenv("CUDA_VISIBLE_DEVICES");
    if (visible && (*visible < '0' || *visible > '9')) return 0;
    return atoi(env("FAKE_CUDA_GPUS", "1"));
}

// Every call is noted; one that the environment tells to fail does.
int enter(const char* name, bool context) {
    calls += name; calls += '\n';
    std::string fail = env("FAKE_CUDA_FAIL", "");
    size_t colon = fail.find(':');
    if (colon != std::string::npos && fail.substr(0, colon) == name) {
        if (fail.substr(colon + 1) == "crash") abort();
        return atoi(fail.c_str() + colon + 1);
    }
    if (strcmp(name, "cuInit") && strcmp(name, "cuDriverGetVersion") && owner != getpid()) return NOT_INITIALIZED;
    return context && !current ? INVALID_CONTEXT : OK;
}

bool within(uint64_t address, size_t size) {
    auto after = memory.upper_bound(address);
    if (after == memory.begin()) return false;
    --after;
    return address + size <= after->first + after->second;
}

Stream* known(void* handle) {
    if (!handle) return &null_stream;
    for (Stream* stream : streams) if (stream == handle) return stream;
    return nullptr;
}

int put(void* handle, Work work) {
    Stream* stream = known(handle);
    if (!stream) return INVALID_HANDLE;
    (stream->capturing ? stream->captured : stream->waiting).push_back(work);
    return OK;
}

// What waits for a stream that is being captured spoils the capture.
int drain(Stream* stream) {
    if (stream->capturing) { stream->spoilt = true; return CAPTURE_UNSUPPORTED; }
    std::vector<Work> work;
    work.swap(stream->waiting);
    for (Work& one : work) { now_ns += one.ns; if (one.act) one.act(); }
    return OK;
}

// A copy on the default stream waits for the others.
int drain_all() { for (Stream* stream : streams) if (int code = drain(stream)) return code; return OK; }

}  // namespace

#define ENTER(context) do { if (int code = enter(__func__, context)) return code; } while (0)

extern "C" {

// For tests: the calls so far, in order, and the GPU's clock; and work of that many nanoseconds that calls `act`.
const char* fake_calls() { return calls.c_str(); }
void fake_forget() { calls.clear(); }
void fake_drop() { for (Stream* stream : streams) stream->waiting.clear(); }
uint64_t fake_clock() { return now_ns; }
size_t fake_used() { return used; }
int fake_launch(void* stream, void (*act)(), uint64_t ns) {
    calls += "launch\n";
    return put(stream, {act ? std::function<void()>(act) : std::function<void()>(), ns});
}

// What a process has started, those that it forks cannot use.
int cuInit(unsigned) {
    ENTER(false);
    if (owner && owner != getpid()) return NOT_INITIALIZED;
    if (!gpus()) return NO_DEVICE;
    owner = getpid();
    return OK;
}
int cuDriverGetVersion(int* version) { ENTER(false); *version = 13010; return OK; }
int cuDeviceGetCount(int* count) { ENTER(false); *count = gpus(); return OK; }
int cuDeviceGet(int* device, int ordinal) { ENTER(false); *device = ordinal; return ordinal < gpus() ? OK : INVALID_VALUE; }
int cuDeviceGetName(char* text, int size, int) { ENTER(false); snprintf(text, size, "Fake GPU"); return OK; }
int cuDeviceGetPCIBusId(char* text, int size, int) { ENTER(false); snprintf(text, size, "0000:01:00.0"); return OK; }
int cuDeviceTotalMem_v2(size_t* size, int) { ENTER(false); *size = MEMORY; return OK; }
int cuDeviceGetAttribute(int* value, int attribute, int) {
    ENTER(false);
    int capability = atoi(env("FAKE_CUDA_CAPABILITY", "87"));
    switch (attribute) {
        case 16: *value = 8; return OK;
        case 18: *value = 1; return OK;
        case 38: *value = atoi(env("FAKE_CUDA_L2", "4096")); return OK;
        case 75: *value = capability / 10; return OK;
        case 76: *value = capability % 10; return OK;
    }
    return INVALID_VALUE;
}
int cuDevicePrimaryCtxRetain(void** context, int) { ENTER(false); *context = &null_stream; return OK; }
int cuCtxSetCurrent(void* context) { ENTER(false); current = context == &null_stream; return current ? OK : INVALID_CONTEXT; }
int cuCtxSynchronize() { ENTER(true); return drain_all(); }

int cuStreamCreate(void** stream, unsigned) { ENTER(true); streams.push_back(new Stream); *stream = streams.back(); return OK; }
int cuStreamSynchronize(void* stream) { ENTER(true); Stream* one = known(stream); return one ? drain(one) : INVALID_HANDLE; }

int cuMemAlloc_v2(uint64_t* address, size_t size) {
    ENTER(true);
    if (!size) return INVALID_VALUE;
    if (used + size > MEMORY) return OUT_OF_MEMORY;
    void* host = malloc(size);
    memset(host, 0xAB, size);  // what was not written is not zero
    *address = reinterpret_cast<uint64_t>(host);
    memory[*address] = size;
    used += size;
    return OK;
}
int cuMemFree_v2(uint64_t address) {
    ENTER(true);
    if (!memory.count(address)) return INVALID_VALUE;
    used -= memory[address];
    memory.erase(address);
    free(reinterpret_cast<void*>(address));
    return OK;
}
int cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t size) {
    ENTER(true);
    if (int code = drain_all()) return code;
    if (!within(to, size)) return INVALID_VALUE;
    memcpy(reinterpret_cast<void*>(to), from, size);
    return OK;
}
int cuMemcpyDtoH_v2(void* to, uint64_t from, size_t size) {
    ENTER(true);
    if (int code = drain_all()) return code;
    if (!within(from, size)) return INVALID_VALUE;
    memcpy(to, reinterpret_cast<void*>(from), size);
    return OK;
}
int cuMemsetD8Async(uint64_t to, unsigned char value, size_t size, void* stream) {
    ENTER(true);
    if (!within(to, size)) return INVALID_VALUE;
    return put(stream, {[=] { memset(reinterpret_cast<void*>(to), value, size); }, uint64_t(size / BYTES_A_NS)});
}

int cuEventCreate(void** event, unsigned) { ENTER(true); *event = new Event; return OK; }
int cuEventRecord(void* event, void* stream) {
    ENTER(true);
    Event* one = static_cast<Event*>(event);
    one->done = false;
    one->stream = known(stream);
    return put(stream, {[=] { one->done = true; one->at = now_ns; }, 0});
}
int cuEventSynchronize(void* event) { ENTER(true); Event* one = static_cast<Event*>(event); return one->stream ? drain(one->stream) : OK; }
int cuEventElapsedTime(float* ms, void* first, void* last) {
    ENTER(true);
    Event *from = static_cast<Event*>(first), *to = static_cast<Event*>(last);
    if (!from->stream || !to->stream) return INVALID_HANDLE;
    if (!from->done || !to->done) return NOT_READY;
    *ms = float((to->at - from->at) * 1e-6);
    return OK;
}

int cuStreamBeginCapture_v2(void* stream, int) {
    ENTER(true);
    Stream* one = known(stream);
    if (!one) return INVALID_HANDLE;
    if (one == &null_stream) return CAPTURE_UNSUPPORTED;
    one->capturing = true;
    one->spoilt = false;
    one->captured.clear();
    return OK;
}
int cuStreamEndCapture(void* stream, void** graph) {
    ENTER(true);
    Stream* one = known(stream);
    one->capturing = false;
    if (one->spoilt) { *graph = nullptr; return CAPTURE_INVALIDATED; }
    *graph = new Graph(one->captured);
    return OK;
}
int cuGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long) { ENTER(true); *executable = graph; return OK; }
int cuGraphLaunch(void* executable, void* stream) {
    ENTER(true);
    for (Work& work : *static_cast<Graph*>(executable)) if (int code = put(stream, work)) return code;
    return OK;
}

struct Named { int code; const char *name, *text; };
const Named ERRORS[] = {
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"},
    {CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"},
};
int cuGetErrorName(int code, const char** text) {
    for (const Named& one : ERRORS) if (one.code == code) { *text = one.name; return OK; }
    *text = nullptr;
    return INVALID_VALUE;
}
int cuGetErrorString(int code, const char** text) {
    for (const Named& one : ERRORS) if (one.code == code) { *text = one.text; return OK; }
    *text = nullptr;
    return INVALID_VALUE;
}

}  // extern "C"
