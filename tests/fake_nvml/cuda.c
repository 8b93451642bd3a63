/* A stand-in for libcuda.so.1 with the GPUs of nvml.c. FAKE_CUDA_SEES lists the GPUs that the driver lets through, in
 * CUDA's order ("10" unless set): it stands for what the real driver does with CUDA_VISIBLE_DEVICES. FAKE_CUDA_MODE
 * selects what is wrong. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *name, *bus;
    unsigned char uuid[16];
    int major, minor;
    size_t total_mib;
} gpus[2] = {
    {"NVIDIA H200", "0000:0F:00.0",
     {0x11, 0x11, 0x11, 0x11, 0x22, 0x22, 0x33, 0x33, 0x44, 0x44, 0x55, 0x55, 0x55, 0x55, 0x55, 0x55}, 9, 0, 143156},
    {"NVIDIA GB10", "0000:1B:00.0",
     {0xaa, 0xaa, 0xaa, 0xaa, 0xbb, 0xbb, 0xcc, 0xcc, 0xdd, 0xdd, 0xee, 0xee, 0xee, 0xee, 0xee, 0xee}, 12, 1, 122502},
};

static int mode(const char *name) {
    const char *set = getenv("FAKE_CUDA_MODE");
    return set && strcmp(set, name) == 0;
}
static const char *sees(void) {
    const char *set = getenv("FAKE_CUDA_SEES");
    return set ? set : "10";
}

int cuInit(unsigned int flags) {
    if (mode("hang"))
        for (;;)
            pause();
    if (mode("crash")) raise(SIGSEGV);
    const char *code = getenv("FAKE_CUDA_MODE");
    if (code && atoi(code)) return atoi(code); /* any CUresult by its number */
    return sees()[0] ? 0 : 100;
}
int cuGetErrorName(int code, const char **name) {
    *name = code == 100 ? "CUDA_ERROR_NO_DEVICE" : code == 803 ? "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" : "CUDA_ERROR_OTHER";
    return 0;
}
int cuDriverGetVersion(int *version) {
    *version = 13000;
    return 0;
}
int cuDeviceGetCount(int *count) {
    *count = (int)strlen(sees());
    return 0;
}
int cuDeviceGet(int *device, int index) {
    *device = sees()[index] - '0';
    return 0;
}
int cuDeviceGetUuid(unsigned char *uuid, int device) {
    memcpy(uuid, gpus[device].uuid, 16);
    return mode("no-uuid") ? 999 : 0;
}
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) {
    cuDeviceGetUuid(uuid, device);
    if (mode("mig")) memset(uuid, 0x77, 16); /* the instance's own */
    return mode("no-uuid") ? 999 : 0;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    *value = attribute == 75 ? gpus[device].major : gpus[device].minor;
    return 0;
}
int cuDeviceGetName(char *name, int length, int device) {
    snprintf(name, length, "%s", gpus[device].name);
    return 0;
}
int cuDeviceTotalMem_v2(size_t *bytes, int device) {
    *bytes = gpus[device].total_mib << 20;
    return mode("no-memory") ? 999 : 0;
}
int cuDeviceGetPCIBusId(char *bus, int length, int device) {
    snprintf(bus, length, "%s", gpus[device].bus);
    return 0;
}
