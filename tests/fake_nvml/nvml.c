/* A stand-in for libnvidia-ml.so.1 with two GPUs. FAKE_NVML_MODE selects what is wrong with it; see the end of each
 * function. Only the functions that the reader calls; signatures as in nvml.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INVALID_ARGUMENT 2
#define NOT_SUPPORTED 3
#define NO_PERMISSION 4
#define DRIVER_NOT_LOADED 9
#define INSUFFICIENT_SIZE 7
#define LIBRARY_NOT_FOUND 12
#define GPU_IS_LOST 15
#define MISMATCH 18
#define UNKNOWN 999

typedef struct {
    char busIdLegacy[16];
    unsigned int domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} PciInfo;
typedef struct {
    unsigned long long total, free, used;
} Memory;

static struct gpu {
    const char *name, *uuid, *bus;
    int major, minor;
    unsigned long long total_mib;
} gpus[2] = {
    {"NVIDIA H200", "GPU-11111111-2222-3333-4444-555555555555", "00000000:0F:00.0", 9, 0, 143771},
    {"NVIDIA GB10", "GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee", "00000000:1B:00.0", 12, 1, 124610},
};

static int mode(const char *name) {
    const char *set = getenv("FAKE_NVML_MODE");
    return set && strcmp(set, name) == 0;
}

static void hang(void) {
    for (;;)
        pause();
}

/* The second GPU has fallen off the bus: everything asked of it fails. */
static int lost(void *device) { return mode("lost-later") && device == &gpus[1]; }

int nvmlInitWithFlags(unsigned int flags) {
    if (mode("hang")) hang();
    if (mode("crash")) abort();
    if (mode("not-loaded")) return DRIVER_NOT_LOADED;
    if (mode("mismatch")) return MISMATCH;
    if (mode("no-permission")) return NO_PERMISSION;
    if (mode("incomplete")) return LIBRARY_NOT_FOUND;
    if (mode("unknown")) return UNKNOWN;
    return 0;
}
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int code) { return "an error of the fake"; }

int nvmlSystemGetDriverVersion(char *version, unsigned int length) {
    snprintf(version, length, "580.159.04");
    return 0;
}
int nvmlSystemGetCudaDriverVersion_v2(int *version) {
    *version = 13000;
    return mode("no-libcuda") ? LIBRARY_NOT_FOUND : 0;
}
int nvmlSystemGetCudaDriverVersion(int *version) {
    *version = 12080;
    return 0;
}
int nvmlDeviceGetCount_v2(unsigned int *count) {
    *count = mode("none") ? 0 : 2;
    return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device) {
    if (index == 1 && mode("hang-on-second")) hang();
    *device = &gpus[index];
    return index == 1 && mode("lost") ? GPU_IS_LOST : index == 0 && mode("forbidden") ? NO_PERMISSION : 0;
}
int nvmlDeviceGetUUID(struct gpu *device, char *uuid, unsigned int length) {
    snprintf(uuid, length, "%s", device->uuid);
    return 0;
}
int nvmlDeviceGetName(struct gpu *device, char *name, unsigned int length) {
    snprintf(name, length, "%s", mode("garbled") && device == &gpus[1] ? "NVIDIA \xff\xfe" : device->name);
    return lost(device) ? GPU_IS_LOST : 0;
}
int nvmlDeviceGetMemoryInfo(struct gpu *device, Memory *memory) {
    memory->total = device->total_mib << 20;
    memory->used = (mode("busy") && device == &gpus[0] ? 90000ull : 1000ull) << 20;
    memory->free = memory->total - memory->used;
    if (device == &gpus[1] && mode("unified")) return NOT_SUPPORTED;
    return lost(device) ? GPU_IS_LOST : 0;
}
int nvmlDeviceGetCudaComputeCapability(struct gpu *device, int *major, int *minor) {
    *major = device->major;
    *minor = device->minor;
    return lost(device) ? GPU_IS_LOST : 0;
}
int nvmlDeviceGetMigMode(struct gpu *device, unsigned int *current, unsigned int *pending) {
    *current = *pending = mode("mig");
    if (device == &gpus[1]) return lost(device) ? GPU_IS_LOST : NOT_SUPPORTED;
    return 0;
}
int nvmlDeviceGetComputeMode(struct gpu *device, int *which) {
    *which = device == &gpus[0] && mode("prohibited") ? 2 : device == &gpus[0] && mode("busy") ? 3 : 0;
    return lost(device) ? GPU_IS_LOST : 0;
}
int nvmlDeviceGetComputeRunningProcesses_v3(struct gpu *device, unsigned int *count, void *processes) {
    unsigned int there = device == &gpus[0] && mode("busy") ? 2 : 0, room = *count;
    *count = there;
    if (there > room) return INSUFFICIENT_SIZE;
    if (there) memset(processes, 1, there * 24);
    return lost(device) ? GPU_IS_LOST : 0;
}
int nvmlDeviceGetNvLinkState(struct gpu *device, unsigned int link, unsigned int *active) {
    *active = !(mode("link-down") && link == 2);
    if (mode("no-nvlink")) return NOT_SUPPORTED;
    return lost(device) ? GPU_IS_LOST : link < 4 ? 0 : INVALID_ARGUMENT;
}
int nvmlDeviceGetTopologyCommonAncestor(struct gpu *one, struct gpu *other, int *level) {
    *level = one < other ? 40 : 0;
    return lost(one) || lost(other) ? GPU_IS_LOST : 0;
}
int nvmlDeviceGetP2PStatus(struct gpu *one, struct gpu *other, int index, int *status) {
    *status = mode("no-nvlink") ? (index == 2 ? 5 : index == 0 ? 1 : 0) : 0;
    return lost(one) || lost(other) ? GPU_IS_LOST : 0;
}
int nvmlDeviceGetPciInfo_v3(struct gpu *device, PciInfo *info) {
    memset(info, 0, sizeof *info);
    snprintf(info->busId, sizeof info->busId, "%s", device->bus);
    return lost(device) ? GPU_IS_LOST : 0;
}
