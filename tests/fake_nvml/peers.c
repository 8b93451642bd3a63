/* A stand-in for libcuda.so.1 with GPUs whose memory is files, so that processes can open each other's.
 *
 * FAKE_CUDA_GPUS: how many. FAKE_CUDA_FOLDER: where the files are. FAKE_CUDA_FAULT: a file with
 * "name" or "name@from>to", what goes wrong with what GPU from sends to GPU to; the names stand in the tests.
 */
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { GPUS = 16, BLOCKS = 64, SUCCESS = 0, INVALID = 1, ALREADY = 704, UNSUPPORTED = 217, NO_IMAGE = 209, MAPPING = 205 };

struct handle { char bytes[64]; };
struct block { char *address; size_t size; int gpu; char name[36]; };
static struct block blocks[BLOCKS];
static int count, current = -1, enabled[GPUS][GPUS], made;
static char stale[1 << 12];

static int gpus(void) { return atoi(getenv("FAKE_CUDA_GPUS")); }

static int is(const char *name, int from, int to) {
    char both[64], fault[64] = "";
    int file = open(getenv("FAKE_CUDA_FAULT"), O_RDONLY);
    if (file < 0) return 0;
    if (read(file, fault, sizeof fault - 1) < 0) fault[0] = 0;
    close(file);
    snprintf(both, sizeof both, "%s@%d>%d", name, from, to);
    return !strcmp(fault, name) || !strcmp(fault, both);
}

static struct block *block_of(uint64_t address) {
    for (int i = 0; i < count; i++)
        if (address >= (uint64_t)blocks[i].address && address < (uint64_t)blocks[i].address + blocks[i].size)
            return &blocks[i];
    return NULL;
}

static char *map(const char *name, size_t size, int gpu) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", getenv("FAKE_CUDA_FOLDER"), name);
    int file = open(path, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, size)) return NULL;
    char *address = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (address == MAP_FAILED || count == BLOCKS) return NULL;
    struct block *block = &blocks[count++];
    block->address = address, block->size = size, block->gpu = gpu;
    snprintf(block->name, sizeof block->name, "%s", name);
    return address;
}

int cuInit(unsigned flags) { return flags ? INVALID : SUCCESS; }
int cuDriverGetVersion(int *version) { return *version = 13000, SUCCESS; }
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) { return memset(uuid, device + 1, 16), SUCCESS; }
int cuDeviceGetUuid(unsigned char *uuid, int device) { return cuDeviceGetUuid_v2(uuid, device); }
int cuDeviceTotalMem_v2(size_t *size, int device) { return *size = (size_t)(device >= 0) << 36, SUCCESS; }
int cuDeviceGetAttribute(int *value, int which, int device) { return *value = which == 75 && device >= 0 ? 9 : 0, SUCCESS; }
int cuDeviceGetCount(int *n) { return *n = gpus(), SUCCESS; }
int cuDeviceGet(int *device, int index) { return *device = index, index < gpus() ? SUCCESS : INVALID; }
int cuDeviceGetName(char *name, int size, int device) { return snprintf(name, size, "Fake %d", device), SUCCESS; }
int cuDeviceGetPCIBusId(char *name, int size, int device) {
    return snprintf(name, size, "0000:%02X:00.0", device + 1), SUCCESS;
}
int cuDeviceCanAccessPeer(int *can, int device, int peer) {
    return *can = !is("no_access", peer, device), SUCCESS;
}
int cuDeviceGetP2PAttribute(int *value, int which, int one, int other) {
    if (which != 3 || one == other) return INVALID;
    return *value = !is("no_access", other, one), SUCCESS;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { return *context = (void *)(intptr_t)(device + 1), SUCCESS; }
int cuCtxSetCurrent(void *context) { return current = (int)(intptr_t)context - 1, SUCCESS; }
int cuCtxSynchronize(void) { return current < 0 ? INVALID : SUCCESS; }
int cuCtxEnablePeerAccess(void *context, unsigned flags) {
    int peer = (int)(intptr_t)context - 1;
    if (flags || peer == current || peer < 0) return INVALID;
    if (is("no_access", peer, current) || is("not_enabled", peer, current)) return UNSUPPORTED;
    if (enabled[current][peer]) return ALREADY;
    return enabled[current][peer] = 1, SUCCESS;
}
int cuMemAlloc_v2(uint64_t *address, size_t size) {
    char name[36];
    snprintf(name, sizeof name, "%d.%d.%d", (int)getpid(), current, made++);
    char *there = map(name, size, current);
    return *address = (uint64_t)there, there ? SUCCESS : INVALID;
}
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t size) {
    struct block *block = block_of(to);
    if (!block || block->gpu != current) return INVALID;
    return memcpy((void *)to, from, size), SUCCESS;
}
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size) {
    struct block *block = block_of(from);
    if (!block || block->gpu != current) return INVALID;
    return memcpy(to, (void *)from, size), SUCCESS;
}

/* Another block of the same GPU, at the same place. */
static uint64_t beside(uint64_t address) {
    struct block *block = block_of(address);
    for (int i = 0; i < count; i++)
        if (&blocks[i] != block && blocks[i].gpu == block->gpu)
            return (uint64_t)blocks[i].address + (address - (uint64_t)block->address);
    return 0;
}

static int move(uint64_t to, uint64_t from, size_t size, int kernel) {
    struct block *target = block_of(to), *source = block_of(from);
    if (!target || !source || size > target->size || size > source->size) return INVALID;
    int a = source->gpu, b = target->gpu;
    if (is("lost", a, b) || (is("lost_by_kernel", a, b) && kernel) || (is("lost_by_memcpy", a, b) && !kernel)) return SUCCESS;
    if (is("large_lost", a, b) && size > 1 << 20 && size < 1 << 21) return SUCCESS;
    while (is("hangs", a, b)) sleep(1);
    if (is("dies", a, b)) abort();
    if (is("lingers", a, b)) for (int file = 0; ; file++, usleep(1000)) close(file);
    if (is("fails", a, b)) return 999;
    if (is("swapped", a, b)) return memmove((void *)from, (void *)to, size), SUCCESS;
    if (is("other_buffer", a, b)) return memmove((void *)beside(to), (void *)from, size), SUCCESS;
    if (is("both_buffers", a, b)) memmove((void *)beside(to), (void *)from, size);
    if (is("stale", a, b)) {
        size_t part = size < sizeof stale ? size : sizeof stale;
        memmove((char *)to + part, (char *)from + part, size - part);
        memcpy((void *)to, stale, part);
        return memcpy(stale, (void *)from, part), SUCCESS;
    }
    memmove((void *)to, (void *)from, size);
    if (is("one_word", a, b)) ((uint32_t *)to)[size / 4 - 1] ^= 1u << 31;
    if (is("one_bit_of_largest", a, b) && size > 1 << 21) ((char *)to)[size / 2] ^= 1;
    if (is("tail_lost", a, b) && size > 64) memset((char *)to + size / 64 * 64, 0, size % 64);
    if (is("written_before", a, b)) ((uint32_t *)to)[-1] = 0;
    if (is("written_behind", a, b)) ((uint32_t *)to)[size / 4] = 0;
    if (is("source_changed", a, b)) ((uint32_t *)from)[0] ^= 1;
    return SUCCESS;
}

int cuMemcpyPeerAsync(uint64_t to, void *target, uint64_t from, void *source, size_t size, void *stream) {
    struct block *received = block_of(to), *sent = block_of(from);
    if (stream || !received || !sent || received->gpu != (int)(intptr_t)target - 1) return INVALID;
    return sent->gpu != (int)(intptr_t)source - 1 ? INVALID : move(to, from, size, 0);
}
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t size, void *stream) {
    return stream ? INVALID : move(to, from, size, 0);
}
int cuEventCreate(void **event, unsigned flags) { return *event = malloc(8), flags ? INVALID : SUCCESS; }
int cuEventRecord(void *event, void *stream) { return !event || stream ? INVALID : SUCCESS; }
int cuEventElapsedTime(float *ms, void *one, void *other) { return *ms = 0.5f, one == other ? INVALID : SUCCESS; }
int cuIpcGetMemHandle(struct handle *handle, uint64_t address) {
    struct block *block = block_of(address);
    if (!block || (uint64_t)block->address != address) return INVALID;
    memset(handle, 0, sizeof *handle);
    return snprintf(handle->bytes, sizeof handle->bytes, "%zu %d %s", block->size, block->gpu, block->name), SUCCESS;
}
int cuIpcOpenMemHandle_v2(uint64_t *address, struct handle handle, unsigned flags) {
    size_t size;
    int gpu;
    char name[36];
    if (flags != 1 || sscanf(handle.bytes, "%zu %d %35s", &size, &gpu, name) != 3) return INVALID;
    if (is("not_opened", gpu, current)) return MAPPING;
    for (int i = 0; i < count; i++)
        if (!strcmp(blocks[i].name, name)) return ALREADY;
    char *there = map(name, size, gpu);
    return *address = (uint64_t)there, there ? SUCCESS : INVALID;
}
int cuModuleLoadData(void **module, const char *image) {
    const char *no_cache = getenv("CUDA_CACHE_DISABLE");
    if (is("no_compiler", 0, 0) || !no_cache || strcmp(no_cache, "1")) return NO_IMAGE;
    return *module = (void *)image, strstr(image, ".entry copy_words(") ? SUCCESS : INVALID;
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
    return *function = module, strcmp(name, "copy_words") ? INVALID : SUCCESS;
}
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void *stream, void **values, void **extra) {
    if (!function || !gx || gy != 1 || gz != 1 || !bx || by != 1 || bz != 1 || shared || stream || extra) return INVALID;
    return move(*(uint64_t *)values[0], *(uint64_t *)values[1], 4 * *(uint64_t *)values[2], 1);
}
int cuGetErrorName(int code, const char **name) {
    *name = code == ALREADY ? "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED"
        : code == UNSUPPORTED ? "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"
        : code == MAPPING ? "CUDA_ERROR_MAP_FAILED"
        : code == NO_IMAGE ? "CUDA_ERROR_NO_BINARY_FOR_GPU"
        : code == 999 ? "CUDA_ERROR_UNKNOWN" : "CUDA_ERROR_INVALID_VALUE";
    return SUCCESS;
}
