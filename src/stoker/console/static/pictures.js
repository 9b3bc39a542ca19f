// Shows the pictures that were captured of a run: for each name the newest, with a slider over the steps.
"use strict";
(() => {
  const section = document.getElementById("pictures");
  if (!section) return;
  const place = section.querySelector(".pictures");
  const shots = new Map();  // source and name -> what shows them

  const figure = (value) => (value == null ? "" : Number(value).toLocaleString(document.documentElement.lang));

  function made(told) {
    const element = document.createElement("figure"), title = document.createElement("h3");
    const link = document.createElement("a"), image = document.createElement("img");
    const label = document.createElement("label"), slider = document.createElement("input"), shown = document.createElement("output");
    element.className = "shot";
    title.textContent = told.name;
    title.title = told.source;
    image.loading = "lazy";
    image.decoding = "async";
    image.addEventListener("load", () => image.classList.toggle("small", image.naturalHeight < 120));
    Object.assign(slider, { type: "range", min: 0, step: 1 });
    slider.setAttribute("aria-label", `${told.name}: ${section.dataset.step}`);
    link.append(image);
    label.append(slider, shown);
    element.append(title, link, label);
    place.append(element);
    const shot = { told, link, image, slider, shown, newest: true };
    slider.addEventListener("input", () => {
      shot.newest = slider.value === slider.max;
      show(shot);
    });
    return shot;
  }

  function show(shot) {
    const [step, path] = shot.told.steps[Number(shot.slider.value)];
    const address = `${section.dataset.src}?path=${encodeURIComponent(path)}`;
    const said = `${section.dataset[shot.told.axis === "step" ? "step" : "order"]} ${figure(step)}`;
    shot.shown.textContent = said;
    shot.slider.setAttribute("aria-valuetext", said);
    if (shot.link.getAttribute("href") === address) return;
    shot.link.href = address;
    shot.image.alt = `${shot.told.name}, ${said}`;
    shot.image.src = address;
  }

  function take(told) {
    const key = JSON.stringify([told.source, told.name]);
    const shot = shots.get(key) || made(told);
    const at = shot.told.steps[Number(shot.slider.value)]?.[1];
    shots.set(key, shot);
    shot.told = told;
    shot.slider.max = told.steps.length - 1;
    const same = told.steps.findIndex((step) => step[1] === at);  // older ones may be gone
    shot.slider.value = shot.newest || same < 0 ? told.steps.length - 1 : same;
    shot.slider.hidden = told.steps.length < 2;
    show(shot);
  }

  const load = asksAgain(() => `${section.dataset.src}s.json`, () => 3000, (told) => {
    told.pictures.forEach(take);
    section.hidden = !told.pictures.length;
  });

  load();
})();
