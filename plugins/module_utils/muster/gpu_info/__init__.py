"""What a look at a node's GPUs (muster_node/look_gpu.py) brought back, made into facts.

`facts.facts(look)` returns, with None for whatever could not be had:

    uptime     seconds since the boot
    container  the kind of container that the node is, or ""
    virtual    the kind of virtual machine that the node is, or ""
    bus        [{slot, id, class, name, driver, answers, numa, link, aer}] every GPU on the PCI bus, driver or not
               link {speed, width, speed_max, width_max, slot_speed, slot_width}, in GT/s and lanes;
               aer {correctable, nonfatal, fatal}
    nvswitches number of NVSwitches on the bus
    driver     {loaded, open, library, on_disk, cuda}: version of the module in the kernel, whether it is the open one,
               version of libnvidia-ml, of the module on disk, and the newest CUDA that the driver takes
    smi        {status, why, code, seconds, notes, cut, lost, lost_slots}: how `nvidia-smi -q -x` went. status: ok,
               not_run, missing, hangs, mismatch, no_driver, failed or unreadable; code: its exit status; notes: what it
               said beside its answer, as far as a person can read it; cut: after how many characters its answer ended
               too early; the others: the GPUs that it could not reach, by number or by slot, whichever it told
    gpus       [GPU], in the driver's order; see query.gpu
    missing    [slot] on the bus and bound to nvidia, and not among the driver's GPUs; None where that cannot be told
    topology   {between: {GPU: {peer: how}}, cpus: {GPU: list}, numa: {GPU: node}, nics: {NIC0: name}} or None
    fabric_manager {unit, enabled, version, log} or None where it is not installed; unit: active, failed... or ""
    imex       state of the unit nvidia-imex, or ""
    holders    [{pid, name, owner, age, unit, devices}] processes that have a file of the driver open
    holders_all whether those of other users could be seen
    skipped    {what: why} what could not be looked at

A GPU is known by its slot on the bus, written as the kernel does: 0000:18:00.0.
"""
