/* A stub of libnvidia-ml.so.1 for Muster's tests: the real nvidia-smi prints its values without a GPU.
 *
 * The format of the output is that of the real program of any branch. The values are simulated and recognisable: every
 * UUID is 00000000-0000-4000-8000-..., and serial numbers count from 0.
 *
 * Environment variables set the scenario. STANDIN_MODEL: a row of MODELS. STANDIN_GPUS: number of GPUs. STANDIN_DRIVER.
 * Faults, each as GPU[:LINK]: STANDIN_LOST, STANDIN_INACTIVE, STANDIN_ERRORS, STANDIN_REMAP, STANDIN_REMAP_FAILED,
 * STANDIN_ECC, STANDIN_MIG, STANDIN_PROHIBITED, STANDIN_HOT, STANDIN_POWER, STANDIN_NARROW, STANDIN_RECOVERY,
 * STANDIN_BROKEN, STANDIN_BROKEN_NAME, STANDIN_UNUSABLE, STANDIN_FABRIC, STANDIN_HELD, STANDIN_PROCESS (of PID STANDIN_PID), STANDIN_NOT_PERSISTENT.
 *
 * Structures and numbers: NVIDIA's nvml.h, as in the package nvidia-ml-py (BSD licence). All other functions that nvidia-smi
 * calls return "not supported"; record.py writes them into standin_missing.h from the program's strings.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { OK = 0, INVALID = 2, UNSUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, LOST = 15, RESET = 16, UNKNOWN = 999 };

struct model {
    const char *key, *name, *vbios, *part, *image;
    int device, brand, architecture, links, mbps, generation, memory, power, clock, memory_clock;
    int remaps, ecc, limits, fabric;
};

static const struct model MODELS[] = {
    {"v100", "Tesla V100-SXM2-32GB", "88.00.80.00.04", "900-2G503-0010-000", "G503.0204.00.02", 0x1db5, 2, 5, 6, 25781,
     3, 32768, 300, 1530, 877, 0, 1, 0, 0},
    {"a100", "NVIDIA A100-SXM4-40GB", "92.00.45.00.03", "692-2G506-0200-003", "G506.0200.00.04", 0x20b0, 14, 7, 12,
     25000, 4, 40960, 400, 1410, 1215, 1, 1, 0, 0},
    {"h100", "NVIDIA H100 80GB HBM3", "96.00.99.00.01", "692-2G520-0200-000", "G520.0200.00.05", 0x2330, 14, 9, 18,
     26562, 5, 81559, 700, 1980, 2619, 1, 1, 1, 1},
    {"h100-pcie", "NVIDIA H100 PCIe", "96.00.30.00.01", "900-21010-0000-000", "1010.0200.00.02", 0x2331, 14, 9, 18,
     26562, 5, 81559, 350, 1755, 1593, 1, 1, 1, 0},
    {"b200", "NVIDIA B200", "97.00.88.00.0F", "692-2G525-0220-502", "G525.0225.00.05", 0x2901, 14, 10, 18, 53125, 5,
     183359, 1000, 1965, 3996, 1, 1, 1, 1},
    {"rtx4090", "NVIDIA GeForce RTX 4090", "95.02.18.80.5F", "N/A", "G002.0000.00.03", 0x2684, 5, 8, 0, 0, 4, 24564,
     450, 3105, 10501, 1, 0, 1, 0},
};
static const int BUSES[] = {0x18, 0x2a, 0x3a, 0x5d, 0x9a, 0xab, 0xba, 0xdb};

struct device { int index; };
static struct device devices[8];

static const char *setting(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value && *value ? value : otherwise;
}

static const struct model *model(void) {
    const char *key = setting("STANDIN_MODEL", "h100");
    for (size_t i = 0; i < sizeof MODELS / sizeof *MODELS; i++)
        if (!strcmp(MODELS[i].key, key)) return &MODELS[i];
    fprintf(stderr, "stub of libnvidia-ml: no model %s\n", key);
    exit(1);
}

static int count(void) { return atoi(setting("STANDIN_GPUS", "8")); }
static int gpu(void *device) { return ((struct device *)device)->index; }

/* Return whether a fault is set for this GPU, or for this link. */
static int fault(const char *name, void *device, int link) {
    int on, of = -1, found = sscanf(setting(name, ""), "%d:%d", &on, &of);
    return found >= 1 && on == gpu(device) && (link < 0 || of < 0 || of == link);
}

static int text(char *to, unsigned length, const char *from) {
    if (strlen(from) + 1 > length) return TOO_SMALL;
    strcpy(to, from);
    return OK;
}

int nvmlInitWithFlags(unsigned flags) { return OK; }
int nvmlInit_v2(void) { return OK; }
int nvmlShutdown(void) { return OK; }
int nvmlEventSetCreate(void **set) { *set = (void *)1; return OK; }
int nvmlEventSetFree(void *set) { return OK; }
int nvmlSystemGetDriverVersion(char *to, unsigned length) { return text(to, length, setting("STANDIN_DRIVER", "580.178.04")); }
int nvmlSystemGetNVMLVersion(char *to, unsigned length) {
    char version[80];
    snprintf(version, sizeof version, "13.%s", setting("STANDIN_DRIVER", "580.178.04"));
    return text(to, length, version);
}
int nvmlSystemGetCudaDriverVersion(int *version) { *version = atoi(setting("STANDIN_CUDA", "13000")); return OK; }
int nvmlSystemGetCudaDriverVersion_v2(int *version) { return nvmlSystemGetCudaDriverVersion(version); }

const char *nvmlErrorString(int code) {
    switch (code) {
        /* The text of libnvidia-ml 580. */
        case OK: return "Success";
        case INVALID: return "Invalid Argument";
        case UNSUPPORTED: return "Not Supported";
        case NOT_FOUND: return "Not Found";
        case TOO_SMALL: return "Insufficient Size";
        case LOST: return "GPU is lost";
        case RESET: return "GPU requires reset";
        case UNKNOWN: return "Unknown Error";
        default: return "Error";
    }
}

/* nvidia-smi also requests a private table and does not need most of it. The function at 23 returns the distance of two
 * devices by their bus ids: 0 PIX, 1 PXB, 2 PHB, 3 NODE, 4 SYS, then NV1 and so on, as observed in its output. */
static int private(void) { return UNSUPPORTED; }
static int distance(const char *one, const char *other, int *to);
static void *table[300];
int nvmlInternalGetExportTable(void **to, const void *id) {
    table[0] = (void *)sizeof table;
    for (size_t i = 1; i < sizeof table / sizeof *table; i++) table[i] = private;
    table[23] = distance;
    *to = table;
    return OK;
}

int nvmlDeviceGetCount_v2(unsigned *to) { *to = count(); return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **to) {
    if (index >= (unsigned)count()) return INVALID;
    devices[index].index = index;
    *to = &devices[index];
    return fault("STANDIN_LOST", *to, -1) ? LOST : OK;
}
static void bus_id(void *device, char *to) { sprintf(to, "00000000:%02X:00.0", BUSES[gpu(device)]); }
int nvmlDeviceGetHandleByPciBusId_v2(const char *wanted, void **to) {
    char id[32];
    for (int i = 0; i < count(); i++) {
        devices[i].index = i;
        bus_id(&devices[i], id);
        if (!strcasecmp(id, wanted)) { *to = &devices[i]; return OK; }
    }
    return NOT_FOUND;
}
int nvmlDeviceGetIndex(void *device, unsigned *to) { *to = gpu(device); return OK; }
int nvmlDeviceGetMinorNumber(void *device, unsigned *to) { *to = gpu(device); return OK; }

struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char text[32]; };
int nvmlDeviceGetPciInfo_v3(void *device, struct pci *to) {
    memset(to, 0, sizeof *to);
    to->bus = BUSES[gpu(device)];
    to->id = (unsigned)model()->device << 16 | 0x10de;
    to->subsystem = 0x16c110de;
    bus_id(device, to->text);
    snprintf(to->legacy, sizeof to->legacy, "%s", to->text + 4);
    return OK;
}
struct pci_ext { unsigned version, domain, bus, device, id, subsystem, base, sub; char text[32]; };
int nvmlDeviceGetPciInfoExt(void *device, struct pci_ext *to) {
    struct pci pci;
    nvmlDeviceGetPciInfo_v3(device, &pci);
    to->domain = 0, to->bus = pci.bus, to->device = 0, to->id = pci.id, to->subsystem = pci.subsystem;
    to->base = 3, to->sub = 2;
    strcpy(to->text, pci.text);
    return OK;
}
int nvmlDeviceGetName(void *device, char *to, unsigned length) {
    if (fault("STANDIN_BROKEN_NAME", device, -1)) return UNKNOWN;
    return text(to, length, model()->name);
}
int nvmlDeviceGetUUID(void *device, char *to, unsigned length) {
    char uuid[80];
    snprintf(uuid, sizeof uuid, "GPU-00000000-0000-4000-8000-%012x", gpu(device));
    return text(to, length, uuid);
}
int nvmlDeviceGetSerial(void *device, char *to, unsigned length) {
    char serial[32];
    snprintf(serial, sizeof serial, "%013d", gpu(device));
    return text(to, length, serial);
}
int nvmlDeviceGetVbiosVersion(void *device, char *to, unsigned length) { return text(to, length, model()->vbios); }
int nvmlDeviceGetBoardPartNumber(void *device, char *to, unsigned length) { return text(to, length, model()->part); }
int nvmlDeviceGetInforomImageVersion(void *device, char *to, unsigned length) { return text(to, length, model()->image); }
int nvmlDeviceGetGspFirmwareVersion(void *device, char *to) { strcpy(to, setting("STANDIN_DRIVER", "580.178.04")); return OK; }
int nvmlDeviceGetBrand(void *device, int *to) { *to = model()->brand; return OK; }
int nvmlDeviceGetArchitecture(void *device, int *to) { *to = model()->architecture; return OK; }
int nvmlDeviceGetBoardId(void *device, unsigned *to) { *to = BUSES[gpu(device)] << 8; return OK; }
int nvmlDeviceGetMultiGpuBoard(void *device, unsigned *to) { *to = 0; return OK; }
int nvmlDeviceGetPersistenceMode(void *device, int *to) { *to = !fault("STANDIN_NOT_PERSISTENT", device, -1); return OK; }
int nvmlDeviceGetDisplayMode(void *device, int *to) { *to = 0; return OK; }
int nvmlDeviceGetDisplayActive(void *device, int *to) { *to = 0; return OK; }
int nvmlDeviceGetAccountingMode(void *device, int *to) { *to = 0; return OK; }
int nvmlDeviceGetAccountingBufferSize(void *device, unsigned *to) { *to = 4000; return OK; }
int nvmlDeviceGetVirtualizationMode(void *device, int *to) { *to = 0; return OK; }
int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *pending) {
    if (model()->architecture < 7 || !model()->ecc) return UNSUPPORTED;
    *now = *pending = fault("STANDIN_MIG", device, -1);
    return OK;
}
int nvmlDeviceGetComputeMode(void *device, int *to) { *to = fault("STANDIN_PROHIBITED", device, -1) ? 2 : 0; return OK; }
int nvmlDeviceGetPerformanceState(void *device, int *to) { *to = 0; return OK; }
int nvmlDeviceGetPowerState(void *device, int *to) { *to = 0; return OK; }

static unsigned long long used(void *device) {
    return fault("STANDIN_HELD", device, -1) || fault("STANDIN_PROCESS", device, -1) ? model()->memory * 3ULL / 4 : 1ULL;
}
struct memory { unsigned version; unsigned long long total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory *to) {
    if (fault("STANDIN_BROKEN", device, -1)) return LOST;
    to->total = (unsigned long long)model()->memory << 20, to->reserved = 483ULL << 20, to->used = used(device) << 20;
    to->free = to->total - to->reserved - to->used;
    return OK;
}
struct old_memory { unsigned long long total, free, used; };
int nvmlDeviceGetMemoryInfo(void *device, struct old_memory *to) {
    if (fault("STANDIN_BROKEN", device, -1)) return LOST;
    to->total = (unsigned long long)model()->memory << 20, to->used = used(device) << 20;
    to->free = to->total - to->used;
    return OK;
}
int nvmlDeviceGetBAR1MemoryInfo(void *device, struct old_memory *to) {
    to->total = 131072ULL << 20, to->used = 1ULL << 20, to->free = to->total - to->used;
    return OK;
}
struct utilization { unsigned gpu, memory; };
int nvmlDeviceGetUtilizationRates(void *device, struct utilization *to) { to->gpu = to->memory = 0; return OK; }

int nvmlDeviceGetEccMode(void *device, int *now, int *pending) {
    if (fault("STANDIN_UNUSABLE", device, -1)) return RESET;
    if (fault("STANDIN_BROKEN", device, -1)) return UNKNOWN;
    if (!model()->ecc) return UNSUPPORTED;
    *now = *pending = 1;
    return OK;
}
/* kind: 1 for uncorrectable errors. when: 1 for aggregate counts. where: 2 for DRAM, 7 for SRAM. */
int nvmlDeviceGetMemoryErrorCounter(void *device, int kind, int when, int where, unsigned long long *to) {
    if (!model()->ecc || (where != 2 && where != 7)) return UNSUPPORTED;
    *to = fault("STANDIN_ECC", device, -1) && kind && where == 2 ? 2 : 0;
    return OK;
}
int nvmlDeviceGetTotalEccErrors(void *device, int kind, int when, unsigned long long *to) {
    return nvmlDeviceGetMemoryErrorCounter(device, kind, when, 2, to);
}
struct sram { unsigned version; unsigned long long counts[11]; unsigned exceeded; };
int nvmlDeviceGetSramEccErrorStatus(void *device, struct sram *to) {
    if (!model()->ecc || model()->architecture < 7) return UNSUPPORTED;
    memset(to->counts, 0, sizeof to->counts);
    to->exceeded = 0;
    return OK;
}
int nvmlDeviceGetRetiredPages(void *device, int cause, unsigned *to, unsigned long long *addresses) {
    if (model()->architecture >= 7 || !model()->ecc) return UNSUPPORTED;
    *to = 0;
    return OK;
}
int nvmlDeviceGetRetiredPages_v2(void *device, int cause, unsigned *to, unsigned long long *addresses, unsigned long long *times) {
    return nvmlDeviceGetRetiredPages(device, cause, to, addresses);
}
int nvmlDeviceGetRetiredPagesPendingStatus(void *device, int *to) {
    if (model()->architecture >= 7 || !model()->ecc) return UNSUPPORTED;
    *to = fault("STANDIN_REMAP", device, -1);
    return OK;
}
int nvmlDeviceGetRemappedRows(void *device, unsigned *corrected, unsigned *others, unsigned *pending, unsigned *failed) {
    if (!model()->remaps || fault("STANDIN_MIG", device, -1)) return UNSUPPORTED;
    *corrected = 0, *pending = fault("STANDIN_REMAP", device, -1), *failed = fault("STANDIN_REMAP_FAILED", device, -1);
    *others = *pending;
    return OK;
}
struct remapped { unsigned version, corrected, corrected_inactive, others, others_inactive, pending, failed; };
int nvmlDeviceGetRemappedRows_v2(void *device, struct remapped *to) {
    /* The structure exists with a version before the counts, and without one. */
    unsigned *counts = (unsigned *)to, corrected, others, pending, failed;
    int code = nvmlDeviceGetRemappedRows(device, &corrected, &others, &pending, &failed);
    if (code) return code;
    counts[0] = corrected, counts[1] = 0, counts[2] = others, counts[3] = 0, counts[4] = pending, counts[5] = failed;
    return OK;
}
struct histogram { unsigned most, high, partial, low, none; };
int nvmlDeviceGetRowRemapperHistogram(void *device, struct histogram *to) {
    if (!model()->remaps) return UNSUPPORTED;
    memset(to, 0, sizeof *to);
    to->most = 2560;
    if (fault("STANDIN_REMAP", device, -1)) to->most--, to->high++;
    return OK;
}

int nvmlDeviceGetMaxPcieLinkGeneration(void *device, unsigned *to) { *to = model()->generation; return OK; }
int nvmlDeviceGetGpuMaxPcieLinkGeneration(void *device, unsigned *to) { *to = model()->generation; return OK; }
int nvmlDeviceGetCurrPcieLinkGeneration(void *device, unsigned *to) { *to = model()->generation; return OK; }
int nvmlDeviceGetMaxPcieLinkWidth(void *device, unsigned *to) { *to = 16; return OK; }
int nvmlDeviceGetCurrPcieLinkWidth(void *device, unsigned *to) { *to = fault("STANDIN_NARROW", device, -1) ? 8 : 16; return OK; }
int nvmlDeviceGetPcieReplayCounter(void *device, unsigned *to) { *to = 0; return OK; }

static int temperature(void *device) { return fault("STANDIN_HOT", device, -1) ? 88 : 31; }
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *to) { *to = temperature(device); return OK; }
struct temperature { unsigned version; int sensor, value; };
int nvmlDeviceGetTemperatureV(void *device, struct temperature *to) {
    if (to->sensor) return UNSUPPORTED;
    to->value = temperature(device);
    return OK;
}
struct margin { unsigned version; int value; };
int nvmlDeviceGetMarginTemperature(void *device, struct margin *to) {
    if (!model()->limits) return UNSUPPORTED;
    to->value = 87 - temperature(device);
    return OK;
}
int nvmlDeviceGetTemperatureThreshold(void *device, int which, unsigned *to) {
    static const int DEGREES[] = {92, 89, 95, 85};
    if (which > 3) return UNSUPPORTED;
    *to = DEGREES[which];
    return OK;
}
static unsigned reasons(void *device) { return fault("STANDIN_HOT", device, -1) ? 0x8 | 0x20 | 0x40 : 0x1; }
int nvmlDeviceGetSupportedClocksThrottleReasons(void *device, unsigned long long *to) { *to = 0x1ff; return OK; }
int nvmlDeviceGetSupportedClocksEventReasons(void *device, unsigned long long *to) { *to = 0x1ff; return OK; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *to) { *to = reasons(device); return OK; }
int nvmlDeviceGetCurrentClocksEventReasons(void *device, unsigned long long *to) { *to = reasons(device); return OK; }
static int clock(int kind) { return kind == 2 ? model()->memory_clock : model()->clock; }
int nvmlDeviceGetClockInfo(void *device, int kind, unsigned *to) { *to = clock(kind); return OK; }
int nvmlDeviceGetMaxClockInfo(void *device, int kind, unsigned *to) { *to = clock(kind); return OK; }
int nvmlDeviceGetApplicationsClock(void *device, int kind, unsigned *to) { *to = clock(kind); return model()->ecc ? OK : UNSUPPORTED; }
int nvmlDeviceGetDefaultApplicationsClock(void *device, int kind, unsigned *to) { return nvmlDeviceGetApplicationsClock(device, kind, to); }
int nvmlDeviceGetPowerManagementMode(void *device, int *to) { *to = 1; return OK; }
static unsigned limit(void *device) { return model()->power * (fault("STANDIN_POWER", device, -1) ? 500 : 1000); }
int nvmlDeviceGetPowerUsage(void *device, unsigned *to) { *to = 71340; return OK; }
int nvmlDeviceGetPowerManagementLimit(void *device, unsigned *to) { *to = limit(device); return OK; }
int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *to) { *to = limit(device); return OK; }
int nvmlDeviceGetPowerManagementDefaultLimit(void *device, unsigned *to) { *to = model()->power * 1000; return OK; }
int nvmlDeviceGetPowerManagementLimitConstraints(void *device, unsigned *least, unsigned *most) {
    *least = 100000, *most = model()->power * 1000;
    return OK;
}

struct fabric { unsigned char cluster[16]; int status; unsigned clique; unsigned char state; };
static int fabric_state(void *device) { return fault("STANDIN_FABRIC", device, -1) ? 2 : 3; }
int nvmlDeviceGetGpuFabricInfo(void *device, struct fabric *to) {
    if (!model()->fabric) return UNSUPPORTED;
    memset(to, 0, sizeof *to);
    to->state = fabric_state(device);
    return OK;
}
struct fabric_v { unsigned version; unsigned char cluster[16]; int status; unsigned clique; unsigned char state; unsigned health; unsigned char summary; };
int nvmlDeviceGetGpuFabricInfoV(void *device, struct fabric_v *to) {
    unsigned version = to->version >> 24;
    if (!model()->fabric) return UNSUPPORTED;
    memset(to->cluster, 0, sizeof to->cluster);
    to->status = 0, to->clique = 0, to->state = fabric_state(device), to->health = 2 | 2 << 2 | 2 << 4 | 2 << 6 | 1 << 8;
    if (version >= 3) to->summary = 1;
    return OK;
}

struct process { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; };
static int processes(void *device, unsigned *many, struct process *to) {
    unsigned there = fault("STANDIN_PROCESS", device, -1);
    if (*many < there || (there && !to)) { *many = there; return TOO_SMALL; }
    *many = there;
    if (there) {
        to->pid = atoi(setting("STANDIN_PID", "4242")), to->memory = used(device) << 20;
        to->gpu_instance = to->compute_instance = 0xffffffff;
    }
    return OK;
}
int nvmlDeviceGetComputeRunningProcesses_v2(void *d, unsigned *many, struct process *to) { return processes(d, many, to); }
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *many, struct process *to) { return processes(d, many, to); }
int nvmlDeviceGetGraphicsRunningProcesses_v2(void *d, unsigned *many, struct process *to) { *many = 0; return OK; }
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *d, unsigned *many, struct process *to) { *many = 0; return OK; }
int nvmlDeviceGetMPSComputeRunningProcesses_v2(void *d, unsigned *many, struct process *to) { *many = 0; return OK; }
int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *d, unsigned *many, struct process *to) { *many = 0; return OK; }
int nvmlSystemGetProcessName(unsigned pid, char *to, unsigned length) {
    return text(to, length, setting("STANDIN_NAME", "/opt/train/bin/python3"));
}

/* Fields by number: links, power limits and temperatures have no separate functions. */
struct value { unsigned field, scope; long long time, latency; int type, code; union { double d; unsigned u; unsigned long long ull; long long ll; } is; };
static int whole(struct value *to, unsigned long long number) { to->type = 1, to->is.ull = 0, to->is.u = number; return OK; }
static int field(void *device, struct value *to) {
    int link = (int)to->scope;
    switch (to->field) {
        case 91: return whole(to, model()->links);
        case 164:
            if (link >= model()->links) return INVALID;
            return whole(to, fault("STANDIN_INACTIVE", device, link) ? 0 : model()->mbps);
        case 165:
            if (link >= model()->links) return INVALID;
            return whole(to, !fault("STANDIN_INACTIVE", device, link));
        case 161: case 162: case 163:
            if (link >= model()->links) return INVALID;
            to->type = 3, to->is.ull = fault("STANDIN_ERRORS", device, link) ? 7 : 0;
            return OK;
        case 82: return model()->ecc ? whole(to, temperature(device) + 8) : UNSUPPORTED;
        case 95: return whole(to, 0);
        case 185: case 186: return to->scope == 0 ? whole(to, 71340) : UNSUPPORTED;
        case 187: return to->scope == 0 ? whole(to, 200000) : UNSUPPORTED;
        case 188: case 189: return to->scope == 0 ? whole(to, model()->power * 1000) : UNSUPPORTED;
        case 190: case 192: return to->scope == 0 ? whole(to, limit(device)) : UNSUPPORTED;
        case 193: to->type = 5, to->is.ll = 0, *(int *)&to->is = -8; return model()->limits ? OK : UNSUPPORTED;
        case 194: to->type = 5, to->is.ll = 0, *(int *)&to->is = -2; return model()->limits ? OK : UNSUPPORTED;
        case 195: to->type = 5, to->is.ll = 0; return model()->limits ? OK : UNSUPPORTED;
        case 226: case 227: return whole(to, fault("STANDIN_RECOVERY", device, -1) && to->field == 226);
        case 230: return whole(to, fault("STANDIN_RECOVERY", device, -1) ? 1 : fault("STANDIN_REMAP", device, -1) ? 4 : 0);
        default:
            /* Rates of single links, from before scopes existed. */
            if (to->field >= 84 && to->field <= 89) { to->scope = to->field - 84, to->field = 164; return field(device, to); }
            if (to->field >= 132 && to->field <= 137) { to->scope = to->field - 126, to->field = 164; return field(device, to); }
            return UNSUPPORTED;
    }
}
int nvmlDeviceGetFieldValues(void *device, int many, struct value *to) {
    for (int i = 0; i < many; i++) {
        unsigned asked = to[i].field, scope = to[i].scope;
        if (getenv("STANDIN_LOG")) fprintf(stderr, "field %u scope %u\n", asked, scope);
        to[i].code = field(device, &to[i]);
        to[i].field = asked, to[i].scope = scope;
    }
    return OK;
}
int nvmlDeviceGetNvLinkState(void *device, unsigned link, int *to) {
    if ((int)link >= model()->links) return INVALID;
    *to = !fault("STANDIN_INACTIVE", device, link);
    return OK;
}
int nvmlDeviceGetNvLinkErrorCounter(void *device, unsigned link, int kind, unsigned long long *to) {
    if ((int)link >= model()->links || kind > 3) return INVALID;
    *to = fault("STANDIN_ERRORS", device, link) ? 7 : 0;
    return OK;
}
int nvmlDeviceGetNvLinkVersion(void *device, unsigned link, unsigned *to) { *to = 4; return OK; }
int nvmlDeviceGetNvLinkCapability(void *device, unsigned link, int which, unsigned *to) { *to = 1; return OK; }

static int index_of(const char *id) {
    void *device;
    return nvmlDeviceGetHandleByPciBusId_v2(id, &device) ? -1 : gpu(device);
}
/* A link that is down reduces the bundle to every other GPU by one, as with NVSwitches. */
static int distance(const char *one, const char *other, int *to) {
    int first = index_of(one), second = index_of(other), links = model()->links;
    if (first < 0 || second < 0) return INVALID;
    for (int link = 0; link < model()->links; link++)
        if (fault("STANDIN_INACTIVE", &devices[first], link) || fault("STANDIN_INACTIVE", &devices[second], link)) links--;
    *to = links && !setting("STANDIN_UNBRIDGED", "")[0] ? 4 + links : first / 4 == second / 4 ? 3 : 4;
    return OK;
}
int nvmlDeviceGetCpuAffinity(void *device, unsigned many, unsigned long *to) {
    for (unsigned i = 0; i < many; i++) to[i] = 0;
    to[gpu(device) / 4] = 0xffffffffffffUL;
    return OK;
}
int nvmlDeviceGetCpuAffinityWithinScope(void *device, unsigned many, unsigned long *to, int scope) {
    return nvmlDeviceGetCpuAffinity(device, many, to);
}
int nvmlDeviceGetMemoryAffinity(void *device, unsigned many, unsigned long *to, int scope) {
    for (unsigned i = 0; i < many; i++) to[i] = 0;
    to[0] = 1UL << gpu(device) / 4;
    return OK;
}
int nvmlDeviceGetP2PStatus(void *one, void *other, int which, int *to) { *to = model()->links ? 0 : 5; return OK; }

#include "standin_missing.h"
