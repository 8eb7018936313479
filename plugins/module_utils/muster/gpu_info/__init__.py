"""Facts about a node's GPUs, parsed from the data that muster_node/look_gpu.py collects.

`facts.facts(look)` returns these facts; unknown values are None:

    uptime     seconds since the boot
    container  the container type if the node is a container, or ""
    virtual    the hypervisor if the node is a virtual machine, or ""
    bus        [{slot, id, class, name, driver, answers, numa, link, aer}] GPUs on the PCI bus, even without a driver
               link {speed, width, speed_max, width_max, slot_speed, slot_width}, in GT/s and lanes;
               aer {correctable, nonfatal, fatal}
    nvswitches number of NVSwitches on the bus
    driver     {loaded, open, library, on_disk, cuda}: version of the loaded module, whether it is the open flavour,
               versions of libnvidia-ml and of the module on disk, and the newest CUDA that the driver supports
    smi        {status, why, code, seconds, notes, cut, lost, lost_slots, hung}: the outcome of `nvidia-smi -q -x`.
               status: ok, not_run, missing, hangs, mismatch, no_driver, failed or unreadable; code: its exit status;
               notes: its readable output outside the XML; cut: the length of a truncated output; lost, lost_slots: the
               GPUs that it could not reach, by number or by slot, as printed; hung: the queries without a response
    gpus       [GPU], in the driver's order; see query.gpu
    missing    [slot] on the bus and bound to nvidia, but not among the driver's GPUs; None if unknown
    topology   {between: {GPU: {peer: how}}, cpus: {GPU: list}, numa: {GPU: node}, nics: {NIC0: name}} or None
    fabric_manager {unit, enabled, version, log}, or None if not installed; unit: active, failed... or ""
    imex       state of the unit nvidia-imex, or ""
    holders    [{pid, name, owner, age, unit, devices}] processes that have a device file of the driver open
    holders_all whether the processes of other users are visible
    skipped    {what: why} what could not be checked

A GPU is identified by its bus slot in the kernel's notation: 0000:18:00.0.
"""
